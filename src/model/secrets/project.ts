import { eq, sql } from 'drizzle-orm'
import { encodeBase64Url } from 'hono/utils/encode'
import type { PlatformCtx } from '../../platform/context.ts'
import type { Writer } from '../../platform/db/client.ts'
import { seal, unseal } from '../../platform/secrets/seal.ts'
import { projects } from '../tables/index.ts'
import { projectPlace } from './bindings.ts'

type Secret = Parameters<typeof projectPlace>[1]

export const sealSecret = (
  { config }: Pick<PlatformCtx, 'config'>,
  ref: string,
  secret: Secret,
  text: string,
): Promise<string> => seal(config.ENCRYPTION_KEY, text, projectPlace(ref, secret))

const open = ({ config }: Pick<PlatformCtx, 'config'>, ref: string, secret: Secret, sealed: string): Promise<string> =>
  unseal(config.ENCRYPTION_KEY, sealed, projectPlace(ref, secret))

/** For who has the key at hand and no Worker. */
export const openJwtSecret = (encryptionKey: string, ref: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, projectPlace(ref, 'jwt_secret'))

interface Row {
  ref: string
  sealedPassword: string
  sealedRunnerPassword: string
  sealedJwtSecret: string | null
}

export const passwordOf = (ctx: PlatformCtx, { ref, sealedPassword }: Pick<Row, 'ref' | 'sealedPassword'>) =>
  open(ctx, ref, 'password', sealedPassword)

export const runnerPasswordOf = (
  ctx: PlatformCtx,
  { ref, sealedRunnerPassword }: Pick<Row, 'ref' | 'sealedRunnerPassword'>,
) => open(ctx, ref, 'runner_password', sealedRunnerPassword)

/** Random, and with what rules on passwords ask for: small and capital letters, digits and signs. */
export const newPassword = (): string => `Pw-${crypto.randomUUID()}`

/** Text of 48 random bytes: clients take the characters themselves for the key. */
export const newJwtSecret = (): string => encodeBase64Url(crypto.getRandomValues(new Uint8Array(48)).buffer)

/** How a secret is read, and written where there is none: within a transaction by that one, as it may hold the project's row. */
type Access = Pick<PlatformCtx, 'config'> & { db: Pick<Writer, 'update'> }

/** Signs every token of the project; a project that has none yet gets one here. */
export async function jwtSecretOf(
  ctx: Access,
  { ref, sealedJwtSecret }: Pick<Row, 'ref' | 'sealedJwtSecret'>,
): Promise<string> {
  return open(ctx, ref, 'jwt_secret', sealedJwtSecret ?? (await giveJwtSecret(ctx, ref)))
}

/** Whoever comes first decides; all others at the same time get the first one's. */
async function giveJwtSecret(ctx: Access, ref: string): Promise<string> {
  const sealed = await sealSecret(ctx, ref, 'jwt_secret', newJwtSecret())
  const [row] = await ctx.db
    .update(projects)
    .set({ sealedJwtSecret: sql`coalesce(${projects.sealedJwtSecret}, ${sealed})` })
    .where(eq(projects.ref, ref))
    .returning({ sealed: projects.sealedJwtSecret })
  if (!row?.sealed) throw new Error(`the project ${ref} has no row`)
  return row.sealed
}
