import * as z from 'zod'

/** Contents that are not text, in base64. */
const Bytes = z.base64()

const Module = z.union([
  z.object({ js: z.string() }),
  z.object({ text: z.string() }),
  z.object({ json: z.json() }),
  z.object({ data: Bytes }),
  z.object({ wasm: Bytes }),
])

/** A program ready to run, kept in the bucket as one JSON text. */
export const Image = z.object({
  /** The module that is the program; it imports the others by their names. */
  main: z.string(),
  modules: z.record(z.string(), Module),
  /** What the program may read as files while it runs, by path from the root of its source. */
  files: z.record(z.string(), Bytes),
  /** Of its environment, as its source has them. */
  vars: z.record(z.string(), z.json()).optional(),
  /** Its static assets: the binding that leads to them, and what tells images with other assets apart. */
  assets: z.object({ binding: z.string().optional(), sha256: z.string() }).optional(),
})
export type Image = z.output<typeof Image>
