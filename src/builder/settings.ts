import * as z from 'zod'

/** Every variable that the builder reads. */
export const Settings = z.object({
  NPM_REGISTRY_URL: z.url().default('https://registry.npmjs.org'),
  /** Address of the JSR registry's npm-compatible API. */
  JSR_REGISTRY_URL: z.url().default('https://npm.jsr.io'),
  /** Allows imports from this machine, for development. */
  IMPORT_LOOPBACK: z.enum(['on', 'off', '']).default('off'),
})
export type Settings = z.output<typeof Settings>

export interface Bindings extends Record<string, unknown> {
  /** Egress to public addresses only, if the runtime provides one; otherwise the global fetch is used. */
  EGRESS?: Fetcher
  /** Loads programs to check whether they start. */
  LOADER: WorkerLoader
  /** Required value of KEY_HEADER; undefined if the builder is reachable only through a service binding. */
  BUILDER_KEY?: string
}

export function readSettings(bindings: Bindings): Settings {
  const { data, error } = Settings.safeParse(bindings)
  if (data) return data
  throw new Error(`Invalid builder settings: ${z.prettifyError(error).replaceAll('\n', ' ')}`)
}
