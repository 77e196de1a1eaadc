import { and, eq, isNull } from 'drizzle-orm'
import * as z from 'zod'
import type { Writer } from '../../db/client.ts'
import { mutate } from '../../db/mutate.ts'
import { projectSettings, projects } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { POSTGREST_DEFAULTS, PostgrestConfig } from '../postgrest/schema.ts'
import { RealtimeSettings } from '../realtime/schema.ts'
import { PoolerSettings, PostgresConfig } from './schema.ts'

/** What a project's row of each area holds; nothing of it is set where there is no row. */
const AREAS = {
  postgres: PostgresConfig,
  pooler: PoolerSettings.default({ default_pool_size: null, pool_mode: 'session' }),
  readonly: z
    .object({
      enabled: z.boolean(),
      /** What for: its size, as long as it is too large, or the operator's word, until he takes it back. */
      by: z.enum(['size', 'operator']),
      /** ISO 8601. */
      overrideUntil: z.string().optional(),
      /** The database was told, so that it must be told when the mode ends. */
      applied: z.boolean(),
    })
    .default({ enabled: false, by: 'size', applied: false }),
  ssl: z.object({ database: z.boolean() }).default({ database: false }),
  disk: z.object({ size_gb: z.int() }).default({ size_gb: 8 }),
  auth: z
    .object({
      values: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
      secrets: z.record(z.string(), z.object({ sealed: z.string(), digest: z.string() })),
      /** Digests that each secret had before, and those of its parent's: they mean what is set now. */
      digests: z.record(z.string(), z.array(z.string())).optional(),
    })
    .default({ values: {}, secrets: {} }),
  postgrest: PostgrestConfig.default(POSTGREST_DEFAULTS),
  realtime: RealtimeSettings.default({}),
}
export type Area = keyof typeof AREAS
export type Settings<A extends Area> = z.output<(typeof AREAS)[A]>

/** A stored value, or what holds without any. */
export const settingsIn = <A extends Area>(area: A, value: unknown): Settings<A> =>
  AREAS[area].parse(value ?? (area === 'postgres' ? {} : undefined)) as Settings<A>

interface Kept<A extends Area> {
  value: Settings<A>
  updatedAt: Date | undefined
}

export async function readSettings<A extends Area>(db: Pick<Writer, 'select'>, ref: string, area: A): Promise<Kept<A>> {
  const [row] = await db
    .select({ value: projectSettings.value, updatedAt: projectSettings.updatedAt })
    .from(projectSettings)
    .where(and(eq(projectSettings.projectRef, ref), eq(projectSettings.area, area)))
  return { value: settingsIn(area, row?.value), updatedAt: row?.updatedAt }
}

interface Change<A extends Area> {
  ref: string
  area: A
  /** What becomes of the value; what it does to the cluster is done when it returns. Undefined leaves all as it is. */
  work(value: Settings<A>): Promise<Settings<A> | undefined>
  /** What the audit log calls changed. */
  fieldsOf?: (before: Settings<A>, after: Settings<A>) => string[]
}

/** One change of a project's settings after the other; what the cluster refuses is not stored. */
export async function changeSettings<A extends Area>(
  ctx: SystemCtx,
  { ref, area, work, fieldsOf = changedFields }: Change<A>,
) {
  return mutate(ctx, async ({ tx, trace }) => {
    const [project] = await tx
      .select({ organizationId: projects.organizationId })
      .from(projects)
      .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
      .for('no key update')
    if (!project) throw new ApiError('not_found.project')
    const { value: before } = await readSettings(tx, ref, area)
    const value = await work(before)
    if (value === undefined) return before
    const row = { value, updatedAt: ctx.now() }
    await tx
      .insert(projectSettings)
      .values({ projectRef: ref, area, ...row })
      .onConflictDoUpdate({ target: [projectSettings.projectRef, projectSettings.area], set: row })
    const { organizationId } = project
    const fields = fieldsOf(before, value)
    await trace({ action: `project.${area}.update`, organizationId, projectRef: ref, detail: { fields } })
    return value
  })
}

function changedFields(before: Record<string, unknown>, after: Record<string, unknown>): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)])
  return Array.from(names).filter((name) => before[name] !== after[name])
}
