import { eq, sql } from 'drizzle-orm'
import type { PlatformCtx } from '../../platform/context.ts'
import type { Writer } from '../../platform/db/client.ts'
import { base64Url } from '../../platform/secrets/base64url.ts'
import { seal, unseal } from '../../platform/secrets/seal.ts'
import { projects } from '../tables/index.ts'
import { projectAssociatedData } from './associated-data.ts'

type Secret = Parameters<typeof projectAssociatedData>[1]

export const sealSecret = (
  { config }: Pick<PlatformCtx, 'config'>,
  ref: string,
  secret: Secret,
  text: string,
): Promise<string> => seal(config.ENCRYPTION_KEY, text, projectAssociatedData(ref, secret))

const open = ({ config }: Pick<PlatformCtx, 'config'>, ref: string, secret: Secret, sealed: string): Promise<string> =>
  unseal(config.ENCRYPTION_KEY, sealed, projectAssociatedData(ref, secret))

/** Opens the JWT secret without a context, for programs outside the Worker. */
export const openJwtSecret = (encryptionKey: string, ref: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, projectAssociatedData(ref, 'jwt_secret'))

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

/** Generates a random password that satisfies common rules: lower case, upper case, digits and symbols. */
export const newPassword = (): string => `Pw-${crypto.randomUUID()}`

/** Generates a secret of 48 random bytes as text. Clients use the bytes of the text, not the decoded ones, as the key. */
export const newJwtSecret = (): string => base64Url(crypto.getRandomValues(new Uint8Array(48)).buffer)

/** `db` must be the current transaction, if there is one: it may hold the lock on the project's row. */
type SecretWriter = Pick<PlatformCtx, 'config'> & { db: Pick<Writer, 'update'> }

/** Returns the secret that signs the project's legacy tokens. Creates it if the project has none yet. */
export async function jwtSecretOf(
  ctx: SecretWriter,
  { ref, sealedJwtSecret }: Pick<Row, 'ref' | 'sealedJwtSecret'>,
): Promise<string> {
  return open(ctx, ref, 'jwt_secret', sealedJwtSecret ?? (await createJwtSecret(ctx, ref)))
}

/** Concurrent calls all return the secret of the first one. */
async function createJwtSecret(ctx: SecretWriter, ref: string): Promise<string> {
  const sealed = await sealSecret(ctx, ref, 'jwt_secret', newJwtSecret())
  const [row] = await ctx.db
    .update(projects)
    .set({ sealedJwtSecret: sql`coalesce(${projects.sealedJwtSecret}, ${sealed})` })
    .where(eq(projects.ref, ref))
    .returning({ sealed: projects.sealedJwtSecret })
  if (!row?.sealed) throw new Error(`project ${ref} does not exist`)
  return row.sealed
}
