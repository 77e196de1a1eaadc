import * as z from 'zod'

/** Binary contents in base64. */
const Bytes = z.base64()

const Module = z.union([
  z.object({ js: z.string() }),
  z.object({ text: z.string() }),
  z.object({ json: z.json() }),
  z.object({ data: Bytes }),
  z.object({ wasm: Bytes }),
])

/** A program ready to run, stored in the bucket as JSON. */
export const Image = z.object({
  /** Name of the main module, which imports the others by name. */
  main: z.string(),
  modules: z.record(z.string(), Module),
  /** Files that the program may read at run time, by path from the root of its source. */
  files: z.record(z.string(), Bytes),
  /** Environment variables set in the source. */
  vars: z.record(z.string(), z.json()).optional(),
  /** Static assets: the binding to reach them, and a digest so that images with other assets differ. */
  assets: z.object({ binding: z.string().optional(), sha256: z.string() }).optional(),
})
export type Image = z.output<typeof Image>
