import { InvalidCredential, verifyClaims } from '../auth/project-token.ts'
import type { SystemCtx } from '../env.ts'
import { jwtSecretOf } from '../secrets/project.ts'
import type { KnownFunction } from './known.ts'
import type { RefusalCode } from './refusals.ts'

/** Why a function that is called with a project's token alone may not be called so; undefined where it may. */
export async function tokenProblem(
  ctx: SystemCtx,
  project: KnownFunction,
  headers: Headers,
): Promise<RefusalCode | undefined> {
  const token = (headers.get('authorization') ?? headers.get('apikey'))?.replace(/^Bearer(\s+|$)/i, '').trim()
  if (!token) return 'UNAUTHORIZED_NO_AUTH_HEADER'
  try {
    await verifyClaims({ jwtSecret: await openedJwtSecret(ctx, project) }, token, ctx.now())
    return undefined
  } catch (error) {
    if (error instanceof InvalidCredential) return problemOf(token)
    throw error
  }
}

const ASYMMETRIC = ['ES256', 'RS256']

function problemOf(token: string): RefusalCode {
  const algorithm = algorithmOf(token)
  if (algorithm === undefined) return 'UNAUTHORIZED_INVALID_JWT_FORMAT'
  if (algorithm === 'HS256') return 'UNAUTHORIZED_LEGACY_JWT'
  return ASYMMETRIC.includes(algorithm) ? 'UNAUTHORIZED_ASYMMETRIC_JWT' : 'UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM'
}

function algorithmOf(token: string): string | undefined {
  const parts = token.split('.')
  try {
    const { alg } = JSON.parse(atob((parts[0] ?? '').replaceAll('-', '+').replaceAll('_', '/')))
    return parts.length === 3 && typeof alg === 'string' ? alg : undefined
  } catch {
    return undefined
  }
}

const OPENED_MAX = 1_000
/** By what is sealed, as opening it costs more than all else that is done for a request. */
const opened = new Map<string, string>()

async function openedJwtSecret(ctx: SystemCtx, { ref, sealedJwtSecret }: KnownFunction): Promise<string> {
  const key = `${ref} ${sealedJwtSecret}`
  const known = opened.get(key)
  if (known !== undefined) return known
  const secret = await jwtSecretOf(ctx, { ref, sealedJwtSecret })
  if (opened.size >= OPENED_MAX) opened.clear()
  if (sealedJwtSecret !== null) opened.set(key, secret)
  return secret
}
