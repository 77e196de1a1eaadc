import * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { openAuthSecret, sealAuthSecret } from '../../../model/secrets/auth.ts'
import { hmacOf } from '../../../platform/secrets/digest.ts'
import { type AuthConfig, FIELD_ENTRIES } from './fields.ts'

/** What was set, beside the defaults; secrets are sealed, with the digest that is told of them. */
export const Kept = z.object({
  values: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
  secrets: z.record(z.string(), z.object({ sealed: z.string(), digest: z.string() })),
  /** Digests that each secret had before, and those of its parent's: they mean what is set now. */
  digests: z.record(z.string(), z.array(z.string())).optional(),
})
export type Kept = z.output<typeof Kept>
type KeptSecret = Kept['secrets'][string]

export function toAuthConfig({ values, secrets }: Kept): AuthConfig {
  const entries = FIELD_ENTRIES.map(([name, field]) => [
    name,
    field.secret ? (secrets[name]?.digest ?? null) : (values[name] ?? field.default),
  ])
  // What is kept was parsed by the schema of its field.
  return Object.fromEntries(entries) as AuthConfig
}

/** Clients compare the digest with one that they make of the secret they have. */
export async function keepSecret(ctx: SystemCtx, ref: string, name: string, text: string): Promise<KeptSecret> {
  const [sealed, digest] = await Promise.all([
    sealAuthSecret(ctx.config.ENCRYPTION_KEY, ref, name, text),
    hmacOf(ref, text),
  ])
  return { sealed, digest }
}

const DIGESTS_MAX = 8

/** All digests that are known of a secret, the last first. */
export const digestsOf = ({ secrets, digests }: Kept, name: string): string[] =>
  Array.from(new Set([...(secrets[name] ? [secrets[name].digest] : []), ...(digests?.[name] ?? [])]))

/** The digests of those whose secrets change, so that none that was told once is taken for a secret. */
export const rememberedDigests = (before: Kept, names: readonly string[]): Kept['digests'] => ({
  ...before.digests,
  ...Object.fromEntries(
    names.flatMap((name) => {
      const known = digestsOf(before, name)
      return known.length > 0 ? [[name, known.slice(0, DIGESTS_MAX)]] : []
    }),
  ),
})

/** The same for another project, to whose row the secrets are bound then. */
export async function keptFor(ctx: SystemCtx, from: string, to: string, { values, secrets }: Kept): Promise<Kept> {
  const entries = Object.entries(secrets).map(async ([name, { sealed }]) => {
    const secret = await openAuthSecret(ctx.config.ENCRYPTION_KEY, from, name, sealed)
    return [name, await keepSecret(ctx, to, name, secret)] as const
  })
  return { values, secrets: Object.fromEntries(await Promise.all(entries)) }
}
