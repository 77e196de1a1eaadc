import type { SystemCtx } from '../../ctx.ts'
import { tokenIn } from '../../platform/http/request-token.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { readJws } from '../../platform/jwt/jws.ts'
import { verifyCaller } from '../gateway/credentials.ts'
import { openTrust } from '../gateway/trust.ts'
import type { RefusalCode } from '../runtime/refusals.ts'
import type { KnownFunction } from './open-function.ts'

/** Checks the token of a call. Returns why the call is refused, or undefined if it is allowed. */
export async function tokenProblem(
  ctx: SystemCtx,
  project: KnownFunction,
  headers: Headers,
): Promise<RefusalCode | undefined> {
  const token = tokenIn(headers)
  if (!token) return 'UNAUTHORIZED_NO_AUTH_HEADER'
  try {
    await verifyCaller(await openTrust(ctx, project.trust), token, ctx.now())
    return undefined
  } catch (error) {
    if (error instanceof InvalidCredential) return invalidTokenCode(token)
    throw error
  }
}

const ASYMMETRIC = ['ES256', 'RS256', 'EdDSA']

function invalidTokenCode(token: string): RefusalCode {
  const algorithm = readJws(token)?.header?.alg
  if (typeof algorithm !== 'string') return 'UNAUTHORIZED_INVALID_JWT_FORMAT'
  if (algorithm === 'HS256') return 'UNAUTHORIZED_LEGACY_JWT'
  return ASYMMETRIC.includes(algorithm) ? 'UNAUTHORIZED_ASYMMETRIC_JWT' : 'UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM'
}
