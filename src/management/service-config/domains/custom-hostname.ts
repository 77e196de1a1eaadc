import { and, eq, inArray, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { customHostnames } from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { hostProblem } from '../../../platform/net/destination.ts'
import { destinationRules } from '../../../platform/net/egress.ts'
import { forgetHost } from '../../../services/gateway/hostnames.ts'
import { isDnsName } from '../../../services/gateway/project-address.ts'
import { changeProject, type ProjectChange } from '../../kernel/change-project.ts'
import { challengeName, describeRecordProblem, verifyHostname } from './challenge.ts'
import type { CustomHostnameConfig } from './schema.ts'

type Row = typeof customHostnames.$inferSelect
type Config = z.input<typeof CustomHostnameConfig>

const UNIQUE_HOSTNAME = 'custom_hostnames_once'

export async function getHostname(ctx: Ctx, { ref }: ProjectAccess): Promise<Config> {
  const [row] = await ctx.db.select().from(customHostnames).where(eq(customHostnames.projectRef, ref))
  if (!row) throw new ApiError('bad_request.custom_hostname.none')
  return toConfig(ctx, row)
}

export async function initializeHostname(ctx: Ctx, project: ProjectAccess, hostname: string): Promise<Config> {
  const problem = originProblem(originOf(ctx, project.ref)) ?? hostProblem(hostname, destinationRules(ctx).ownHosts)
  if (problem) throw invalidHostname(problem)
  const now = ctx.now()
  const row = await changeHostname(ctx, project, async ({ tx, record }) => {
    const [inserted] = await tx
      .insert(customHostnames)
      .values({
        ...{ projectRef: project.ref, hostname, status: '2_initiated', challenge: crypto.randomUUID() },
        ...{ createdAt: now, updatedAt: now },
      })
      .onConflictDoNothing()
      .returning()
    if (!inserted) throw new ApiError('conflict.custom_hostname')
    await record('custom_hostname.initialize', traced(inserted))
    return inserted
  })
  return toConfig(ctx, row)
}

const PENDING = ['2_initiated', '3_challenge_verified'] as const

/** Checks the DNS records again. They are looked up before the lock is taken, because a resolver may be slow. */
export async function reverifyHostname(ctx: Ctx, project: ProjectAccess): Promise<Config> {
  const [before] = await ctx.db.select().from(customHostnames).where(eq(customHostnames.projectRef, project.ref))
  requirePending(before)
  const found = await verifyHostname(ctx, { ...before, origin: originOf(ctx, project.ref) })
  const row = await changeHostname(ctx, project, async ({ tx, record }) => {
    const [updated] = await tx
      .update(customHostnames)
      // A verified hostname stays verified without the record.
      .set({ ...found, ...(found.status === '2_initiated' && { status: sql`status` }), updatedAt: ctx.now() })
      .where(and(eq(customHostnames.id, before.id), inArray(customHostnames.status, [...PENDING])))
      .returning()
    if (!updated) throw new ApiError('bad_request.custom_hostname.not_pending')
    if (updated.status !== before.status) await record('custom_hostname.verify', traced(updated))
    return updated
  })
  return toConfig(ctx, row)
}

function requirePending(row: Row | undefined): asserts row is Row {
  if (row?.status === '4_origin_setup_completed') throw new ApiError('bad_request.custom_hostname.verified')
  if (!row || !PENDING.some((status) => status === row.status)) {
    throw new ApiError('bad_request.custom_hostname.not_pending')
  }
}

export async function activateHostname(ctx: Ctx, project: ProjectAccess): Promise<Config> {
  const row = await changeHostname(ctx, project, async ({ tx, record }) => {
    const [before] = await tx.select().from(customHostnames).where(eq(customHostnames.projectRef, project.ref))
    if (before?.status === '5_services_reconfigured') throw new ApiError('bad_request.custom_hostname.active')
    if (before?.status !== '4_origin_setup_completed') throw new ApiError('bad_request.custom_hostname.unverified')
    const [updated] = await tx
      .update(customHostnames)
      .set({ status: '5_services_reconfigured', updatedAt: ctx.now() })
      .where(eq(customHostnames.id, before.id))
      .returning()
    if (!updated) throw new Error('the custom hostname was not updated')
    await record('custom_hostname.activate', traced(updated))
    return updated
  })
  forgetHost(row.hostname)
  return toConfig(ctx, row)
}

export async function deleteHostname(ctx: Ctx, project: ProjectAccess): Promise<void> {
  const { hostname } = await changeHostname(ctx, project, async ({ tx, record }) => {
    const [deleted] = await tx.delete(customHostnames).where(eq(customHostnames.projectRef, project.ref)).returning()
    if (!deleted) throw new ApiError('bad_request.custom_hostname.not_configured')
    await record('custom_hostname.delete', traced(deleted))
    return deleted
  })
  forgetHost(hostname)
}

const changeHostname = <T>(ctx: Ctx, project: ProjectAccess, work: (change: ProjectChange) => Promise<T>): Promise<T> =>
  changeProject(ctx, project, work).catch((error: unknown) => {
    if (uniqueViolation(error) === UNIQUE_HOSTNAME) throw invalidHostname('the hostname is used by another project')
    throw error
  })

const traced = ({ hostname, status }: Row) => ({ hostname, status })

/** Returns the host to which the custom hostname must point: the project's own host or that of the installation. */
const originOf = ({ config: { BASE_URL, PROJECT_DOMAIN } }: Ctx, ref: string): string =>
  PROJECT_DOMAIN ? `${ref}.${PROJECT_DOMAIN}` : new URL(BASE_URL).hostname

const originProblem = (origin: string): string | undefined =>
  isDnsName(origin) ? undefined : 'this installation has no public host name to which a hostname could point'

function toConfig(ctx: Ctx, { id, projectRef, hostname, status, challenge, errors }: Row): Config {
  const isUnverified = status === '2_initiated'
  const [name, value] = [challengeName(hostname), challenge]
  const message = describeRecordProblem({ hostname, challenge })
  return {
    status,
    custom_hostname: hostname,
    data: {
      success: true,
      errors: [],
      messages: [],
      result: {
        id,
        hostname,
        // The CLI shows the record from here. Certificates are managed by the TLS proxy in front of this installation.
        ssl: isUnverified
          ? {
              status: 'pending_validation',
              validation_records: [{ txt_name: name, txt_value: value }],
              ...(errors.includes(message) && { validation_errors: [{ message }] }),
            }
          : { status: 'external', validation_records: [] },
        ownership_verification: isUnverified ? { type: 'txt', name, value } : {},
        custom_origin_server: originOf(ctx, projectRef),
        ...(errors.length > 0 && { verification_errors: errors }),
        status: status === '5_services_reconfigured' ? 'active' : 'pending',
      },
    },
  }
}

const invalidHostname = (detail: string) => new ApiError('bad_request.custom_hostname', { detail })
