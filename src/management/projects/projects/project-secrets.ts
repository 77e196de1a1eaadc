import { eq, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { isDatabaseError } from '../../../engine/database-errors.ts'
import { EngineUnavailable } from '../../../engine/engine-errors.ts'
import { SettingsRefused } from '../../../engine/settings.ts'
import { newJwtSecret, newPassword, sealSecret } from '../../../model/secrets/project.ts'
import { projects } from '../../../model/tables/index.ts'
import { inTransaction, REQUEST_LOCK_MS, type Writer } from '../../../platform/db/client.ts'
import { controlDatabase } from '../../../platform/db/control-database.ts'
import { isUnavailable, postgresFailure } from '../../../platform/db/postgres-errors.ts'
import { mutate } from '../../kernel/mutate.ts'
import { withUserSession } from '../../kernel/user-sessions.ts'
import { checkStatus } from './status.ts'

/** Seals the secrets of a new project: the given owner password, and generated ones for the rest. */
export async function sealSecrets(ctx: SystemCtx, ref: string, password: string) {
  return {
    sealedPassword: await sealSecret(ctx, ref, 'password', password),
    sealedRunnerPassword: await sealSecret(ctx, ref, 'runner_password', newPassword()),
    sealedJwtSecret: await sealSecret(ctx, ref, 'jwt_secret', newJwtSecret()),
  }
}

/**
 * Stores the password before it is set in the database. Code that sets the stored password again, such as the end of a temporary
 * login, then sets the new one. Changes of a project run one at a time, so the last password stored is the last one set. If the
 * connection is lost, the database may have the new password, so it stays stored: the caller can repeat the request.
 */
export async function changePassword(ctx: Ctx, project: ProjectAccess, password: string): Promise<void> {
  const { ref } = project
  const sealed = await sealSecret(ctx, ref, 'password', password)
  const address = { ...controlDatabase(ctx.config), lockTimeoutMs: REQUEST_LOCK_MS }
  const transact = async (tx: Writer) => {
    // The lock is advisory, because `writePassword` would wait for a lock of the row.
    await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`password ${ref}`}, 0))`)
    const before = await writePassword(ctx, project, 'update', sealed)
    try {
      await ctx.engine.setPassword(ref, password)
    } catch (error) {
      if (isPasswordUnchanged(error)) await writePassword(ctx, project, 'restore', before)
      // The error of an unavailable project database would otherwise look like one of the control database.
      throw isUnavailable(error) ? new EngineUnavailable(SESSION_LOST_MESSAGE, { cause: error }) : error
    }
  }
  await withUserSession(ctx.actor.userId, () => inTransaction(address, transact))
}

/** Codes of a session that was ended from outside, possibly after its commit. */
const SESSION_LOST = /^(08|57P0[12]|EPIPE)/
const SESSION_LOST_MESSAGE = 'the session ended while the password was being set'

/** Whether the database has kept its password: no session could be opened, or Postgres has refused the statement. */
const isPasswordUnchanged = (error: unknown): boolean =>
  !SESSION_LOST.test(postgresFailure(error)?.code ?? '') &&
  (error instanceof EngineUnavailable || error instanceof SettingsRefused || isDatabaseError(error))

/** Stores the sealed password and returns the previous one. */
const writePassword = (
  ctx: Ctx,
  { ref, organizationId }: ProjectAccess,
  verb: 'update' | 'restore',
  sealedPassword: string,
): Promise<string> =>
  mutate(ctx, async ({ tx, trace }) => {
    const [row] = await tx
      .select({ status: projects.status, sealedPassword: projects.sealedPassword })
      .from(projects)
      .where(eq(projects.ref, ref))
      .for('no key update')
    if (!row) throw new Error(`the project ${ref} has no row`)
    // A restore that has begun sets the password that it has read.
    if (verb === 'update') checkStatus(row.status)
    await tx.update(projects).set({ sealedPassword }).where(eq(projects.ref, ref))
    await trace({ action: `project.password.${verb}`, organizationId, projectRef: ref })
    return row.sealedPassword
  })
