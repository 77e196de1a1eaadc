import * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { openAuthSecret, sealAuthSecret } from '../../../model/secrets/auth.ts'
import { hmacOf } from '../../../platform/secrets/digest.ts'
import { type AuthConfig, FIELD_ENTRIES } from './fields.ts'

/** Values that differ from the defaults. Secrets are encrypted and stored with their digest. */
export const StoredAuthConfig = z.object({
  values: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
  secrets: z.record(z.string(), z.object({ sealed: z.string(), digest: z.string() })),
  /** Earlier digests of each secret, including the parent's. Clients may send them to mean the current secret. */
  digests: z.record(z.string(), z.array(z.string())).optional(),
})
export type StoredAuthConfig = z.output<typeof StoredAuthConfig>
type StoredSecret = StoredAuthConfig['secrets'][string]

export function toAuthConfig({ values, secrets }: StoredAuthConfig): AuthConfig {
  const entries = FIELD_ENTRIES.map(([name, field]) => [
    name,
    field.secret ? (secrets[name]?.digest ?? null) : (values[name] ?? field.default),
  ])
  // Stored values were validated by the schemas of their fields.
  return Object.fromEntries(entries) as AuthConfig
}

/** Encrypts a secret and adds its digest, with which clients compare their own copy of the secret. */
export async function sealSecret(ctx: SystemCtx, ref: string, name: string, text: string): Promise<StoredSecret> {
  const [sealed, digest] = await Promise.all([
    sealAuthSecret(ctx.config.ENCRYPTION_KEY, ref, name, text),
    hmacOf(ref, text),
  ])
  return { sealed, digest }
}

const DIGESTS_MAX = 8

/** Returns all known digests of a secret, latest first. */
export const digestsOf = ({ secrets, digests }: StoredAuthConfig, name: string): string[] =>
  Array.from(new Set([...(secrets[name] ? [secrets[name].digest] : []), ...(digests?.[name] ?? [])]))

/** Collects the digests of changed secrets, so that a digest sent later is not stored as a secret. */
export const collectDigests = (before: StoredAuthConfig, names: readonly string[]): StoredAuthConfig['digests'] => ({
  ...before.digests,
  ...Object.fromEntries(
    names.flatMap((name) => {
      const known = digestsOf(before, name)
      return known.length > 0 ? [[name, known.slice(0, DIGESTS_MAX)]] : []
    }),
  ),
})

/** Re-encrypts the secrets for another project, because they are bound to the project's row. */
export async function resealFor(
  ctx: SystemCtx,
  from: string,
  to: string,
  { values, secrets }: StoredAuthConfig,
): Promise<StoredAuthConfig> {
  const entries = Object.entries(secrets).map(async ([name, { sealed }]) => {
    const secret = await openAuthSecret(ctx.config.ENCRYPTION_KEY, from, name, sealed)
    return [name, await sealSecret(ctx, to, name, secret)] as const
  })
  return { values, secrets: Object.fromEntries(await Promise.all(entries)) }
}
