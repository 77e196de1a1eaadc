import { and, eq, isNull } from 'drizzle-orm'
import { hashToken } from '../../../access/token.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { oauthApps, organizations } from '../../../model/tables/index.ts'
import { BoundedMap } from '../../../platform/bounded-map.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { UUID } from '../../../platform/identifiers.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'
import { invalidField } from '../../kernel/invalid-field.ts'

export type App = typeof oauthApps.$inferSelect & { publisher: string }

export interface SentCredentials {
  client_id?: string | undefined
  client_secret?: string | undefined
}

/** Finds an application; undefined for an unknown id, or while its publisher is disabled. */
export async function findApp({ db }: SystemCtx, id: string): Promise<App | undefined> {
  if (!UUID.test(id)) return undefined
  const [row] = await db
    .select({ app: oauthApps, publisher: organizations.name })
    .from(oauthApps)
    .innerJoin(organizations, eq(organizations.id, oauthApps.organizationId))
    .where(and(eq(oauthApps.id, id), isNull(organizations.disabledAt)))
  return row && { ...row.app, publisher: row.publisher }
}

/** Authenticates the calling application by its secret; a public one only names its id (RFC 6749, 2.3.1 and 3.2.1). */
export async function authenticateClient(
  ctx: SystemCtx,
  sent: SentCredentials,
  authorization: string | null,
): Promise<App> {
  const { id, secret } = credentialsOf(sent, authorization)
  const app = await findApp(ctx, id.toLowerCase())
  if (!app || !(await isSecretOf(app, secret))) throw new ApiError('oauth.invalid_client')
  return app
}

const VERIFIED_MAX = 1_000
/** Credentials that have been verified, by client id and hash of the secret. */
const verifiedCredentials = new BoundedMap<string, true>(VERIFIED_MAX)

/** Authenticates an application by its secret and returns its id; undefined if it sends no secret. */
export async function authenticateBySecret(
  ctx: SystemCtx,
  sent: SentCredentials,
  authorization: string | null,
  mayGuess: boolean,
): Promise<string | undefined> {
  const { id, secret } = credentialsOf(sent, authorization)
  if (secret === undefined) return undefined
  const name = `${id.toLowerCase()} ${await hashToken(secret)}`
  // A secret that has been verified is not a guess, so guesses from the same address must not lock it out.
  if (!mayGuess && !verifiedCredentials.get(name)) throw new ApiError('oauth.invalid_client')
  const app = await authenticateClient(ctx, sent, authorization)
  verifiedCredentials.set(name, true)
  return app.id
}

interface Credentials {
  id: string
  secret: string | undefined
}

function credentialsOf(sent: SentCredentials, authorization: string | null): Credentials {
  const basic = /^Basic +(\S+)$/i.exec(authorization ?? '')?.[1]
  if (basic === undefined) {
    if (sent.client_id === undefined)
      throw invalidField('body.client_id', 'is missing: send it in the body or by HTTP Basic authentication')
    return { id: sent.client_id, secret: sent.client_secret || undefined }
  }
  const named = decodeBasic(basic)
  if (sent.client_secret !== undefined)
    throw invalidField('body.client_secret', 'must not be sent with an Authorization header')
  if (sent.client_id !== undefined && sent.client_id !== named.id)
    throw invalidField('body.client_id', 'does not match the Authorization header')
  return named
}

/** Decodes Basic credentials, whose two parts are form-encoded. */
function decodeBasic(credentials: string): Credentials {
  try {
    const [, id = '', secret = ''] = /^([^:]*):(.*)$/.exec(atob(credentials)) ?? []
    const decode = (text: string) => decodeURIComponent(text.replaceAll('+', ' '))
    return { id: decode(id), secret: decode(secret) || undefined }
  } catch (cause) {
    throw new ApiError('oauth.invalid_client', { cause })
  }
}

async function isSecretOf({ secretHash }: App, secret: string | undefined): Promise<boolean> {
  if (secretHash === null || secret === undefined) return secretHash === null && secret === undefined
  return isSameSecret(await hashToken(secret), secretHash)
}
