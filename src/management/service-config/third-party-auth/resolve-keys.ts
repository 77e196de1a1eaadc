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
  /** What tokens must say in `iss`; null where only their keys are known. */
  issuer: string | null
  jwks: KeySet
}

/** The keys as they stand there now. */
export async function resolveKeys(
  ctx: SystemCtx,
  { oidcIssuerUrl, jwksUrl }: Source,
  { mayBeEmpty = false } = {},
): Promise<Resolved> {
  const fetchJwks = async (url: string): Promise<KeySet> =>
    readJwks(await fetchJson(ctx, url), { passesOver: true, mayBeEmpty })
  if (oidcIssuerUrl === null) return { issuer: null, jwks: await fetchJwks(jwksUrl ?? '') }
  const { issuer, jwks_uri } = await discover(ctx, oidcIssuerUrl)
  const jwks = await inside('its jwks_uri', () => fetchJwks(jwks_uri))
  return { issuer, jwks }
}

async function discover(ctx: SystemCtx, url: string): Promise<z.output<typeof Discovery>> {
  const { search, hash } = URL.parse(url) ?? { search: '', hash: '' }
  if (search || hash) throw new UnusableValue('must have neither a query nor a fragment')
  const document = await inside('its /.well-known/openid-configuration', async () => {
    const value = await fetchJson(ctx, `${withoutSlash(url)}/.well-known/openid-configuration`)
    const { data } = Discovery.safeParse(value)
    if (!data) throw new UnusableValue('has not both "issuer" and "jwks_uri"')
    return data
  })
  // Some issuers end in a slash that people leave out: tokens must say what the issuer says.
  if (withoutSlash(document.issuer) !== withoutSlash(url)) {
    throw new UnusableValue(`is not what its discovery document says: ${JSON.stringify(document.issuer.slice(0, 200))}`)
  }
  return document
}

const withoutSlash = (url: string): string => url.replace(/\/$/, '')

async function fetchJson(ctx: SystemCtx, url: string): Promise<unknown> {
  const text = await fetchText(ctx, url, { accept: 'application/json', sizeBytesMax: JSON_BYTES_MAX })
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new UnusableValue('answers with what is no JSON', { cause })
  }
}

/** Says where on the way it went wrong; what the address itself is refused for needs no place. */
async function inside<T>(place: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    throw cause instanceof UnusableValue ? new UnusableValue(`${place} ${cause.message}`, { cause }) : cause
  }
}
