import * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { UnusableValue } from '../../../platform/http/unusable-value.ts'
import { fetchText } from '../../../platform/net/fetch-text.ts'
import { type KeySet, readJwks } from './jwks.ts'

const JSON_BYTES_MAX = 64 * 1024

const Discovery = z.object({ issuer: z.string(), jwks_uri: z.string().max(2_048) })

export interface Source {
  oidcIssuerUrl: string | null
  jwksUrl: string | null
}

export interface Resolved {
  /** The required `iss` claim of tokens; null if only the keys are known. */
  issuer: string | null
  jwks: KeySet
}

/** Fetches the current keys of an issuer. */
export async function resolveKeys(
  ctx: SystemCtx,
  { oidcIssuerUrl, jwksUrl }: Source,
  { allowEmpty = false } = {},
): Promise<Resolved> {
  const fetchJwks = async (url: string): Promise<KeySet> =>
    readJwks(await fetchJson(ctx, url), { ignoresOtherKeys: true, allowEmpty })
  if (oidcIssuerUrl === null) return { issuer: null, jwks: await fetchJwks(jwksUrl ?? '') }
  const { issuer, jwks_uri } = await discover(ctx, oidcIssuerUrl)
  const jwks = await withLocation('its jwks_uri', () => fetchJwks(jwks_uri))
  return { issuer, jwks }
}

async function discover(ctx: SystemCtx, url: string): Promise<z.output<typeof Discovery>> {
  const { search, hash } = URL.parse(url) ?? { search: '', hash: '' }
  if (search || hash) throw new UnusableValue('must have neither a query nor a fragment')
  const document = await withLocation('its /.well-known/openid-configuration', async () => {
    const value = await fetchJson(ctx, `${withoutSlash(url)}/.well-known/openid-configuration`)
    const { data } = Discovery.safeParse(value)
    if (!data) throw new UnusableValue('must have "issuer" and "jwks_uri"')
    return data
  })
  // Users often omit a trailing slash of the issuer; tokens must have the issuer's own spelling.
  if (withoutSlash(document.issuer) !== withoutSlash(url)) {
    throw new UnusableValue(
      `must equal the issuer in its discovery document: ${JSON.stringify(document.issuer.slice(0, 200))}`,
    )
  }
  return document
}

const withoutSlash = (url: string): string => url.replace(/\/$/, '')

async function fetchJson(ctx: SystemCtx, url: string): Promise<unknown> {
  const text = await fetchText(ctx, url, { accept: 'application/json', sizeBytesMax: JSON_BYTES_MAX })
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new UnusableValue('must return JSON', { cause })
  }
}

/** Adds the location of an error in the discovery to its message. */
async function withLocation<T>(location: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    throw cause instanceof UnusableValue ? new UnusableValue(`${location} ${cause.message}`, { cause }) : cause
  }
}
