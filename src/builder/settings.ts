import * as z from 'zod'

const Settings = z.object({
  NPM_REGISTRY_URL: z.url().default('https://registry.npmjs.org'),
  /** The form of the JSR registry that speaks as npm's does. */
  JSR_REGISTRY_URL: z.url().default('https://npm.jsr.io'),
  /** Development: modules may be imported from this machine. */
  IMPORT_LOOPBACK: z.enum(['on', 'off', '']).default('off'),
})
export type Settings = z.output<typeof Settings>

export interface Bindings extends Record<string, unknown> {
  /** A way out that reaches public addresses alone, where the runtime can give one; else the global fetch. */
  EGRESS?: Fetcher
  /** Starts programs to see whether they start. */
  LOADER: WorkerLoader
  /** What KEY_HEADER must hold; where only a service binding leads here there is none. */
  BUILDER_KEY?: string
}

export function readSettings(bindings: Bindings): Settings {
  const { data, error } = Settings.safeParse(bindings)
  if (data) return data
  throw new Error(`settings of the builder: ${z.prettifyError(error).replaceAll('\n', ' ')}`)
}
