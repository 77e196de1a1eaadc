import { and, eq, inArray, isNull, ne, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { projectSettings, projects } from '../../../model/tables/index.ts'
import { forEachConcurrently } from '../../../platform/for-each-concurrently.ts'
import { describeError } from '../../../platform/http/log.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { ACTIVE } from '../../projects/projects/project-states.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { parseSettings, type Settings } from '../../projects/settings/setting-areas.ts'
import { throwApiError } from '../database/service.ts'
import { GIGABYTE } from './disk.ts'
import type { ReadOnlyStatus } from './schema.ts'

type Mode = Settings<'readonly'>

/** An unreachable database must not delay the others. */
const CONCURRENCY = 8
const OVERRIDE_MS = 15 * 60_000

/** Share of the disk at which a project becomes read-only, and share below which it becomes writable again. */
export const READ_ONLY_SHARE = 0.95
const WRITABLE_SHARE = 0.9

const isOverridden = ({ overrideUntil }: Mode, now: Date): boolean =>
  overrideUntil !== undefined && now < new Date(overrideUntil)

const mustApply = (mode: Mode, now: Date): boolean => mode.enabled && !isOverridden(mode, now)

export async function getReadOnlyStatus(
  { db, now }: Ctx,
  { ref }: ProjectAccess,
): Promise<z.input<typeof ReadOnlyStatus>> {
  const { value: mode } = await readSettings(db, ref, 'readonly')
  const overridden = isOverridden(mode, now())
  return {
    enabled: mode.enabled,
    override_enabled: overridden,
    override_active_until: (overridden && mode.overrideUntil) || '',
  }
}

/** Makes the database writable until the override ends, whatever the mode is or becomes. */
export async function disableReadOnly(ctx: Ctx, project: ProjectAccess): Promise<void> {
  checkStatus(project.status)
  const { ref } = project
  const overrideUntil = new Date(ctx.now().getTime() + OVERRIDE_MS).toISOString()
  await changeSettings(ctx, {
    project,
    area: 'readonly',
    work: async (mode) => {
      if (mode.applied) await setReadOnly(ctx, ref, false)
      return { ...mode, overrideUntil, applied: false }
    },
  })
}

const setReadOnly = ({ engine }: SystemCtx, ref: string, readOnly: boolean): Promise<void> =>
  engine.settings.setReadOnly(ref, readOnly).catch(throwApiError)

/** Makes each project read-only or writable, depending on its size, the operator and an override. */
export async function keepReadOnly(ctx: SystemCtx): Promise<void> {
  await updateModesBySize(ctx, await activeModes(ctx))
  const modes = await activeModes(ctx)
  const mustBeReadOnly = modes.filter(({ mode }) => mustApply(mode, ctx.now()))
  const readOnlyRefs = await ctx.engine.settings.filterReadOnly(mustBeReadOnly.map(({ ref }) => ref))
  await forEachConcurrently(modes, CONCURRENCY, async ({ ref, mode }) => {
    const wanted = mustApply(mode, ctx.now())
    if (wanted ? readOnlyRefs.has(ref) : !mode.applied) return
    await apply(ctx, ref).catch((error) => logFailure(ctx, ref, error))
  })
}

const logFailure = ({ log }: SystemCtx, ref: string, error: unknown): void =>
  log.error('read_only_failed', { project: ref, error: describeError(error) })

/** Stores `applied` before changing the database, so that a change is always undone later. */
async function apply(ctx: SystemCtx, ref: string): Promise<void> {
  const mode = await changeSettings(ctx, {
    project: { ref },
    area: 'readonly',
    work: async (mode) => {
      const wanted = mustApply(mode, ctx.now())
      if (!wanted && mode.applied) await setReadOnly(ctx, ref, false)
      return wanted === mode.applied ? undefined : { ...mode, applied: wanted }
    },
  })
  if (mode.applied) await applyReadOnly(ctx, { ref })
}

/**
 * Applies the stored mode under the project lock, so that a mode that was reset meanwhile is not applied again. A project that never
 * had the mode keeps the owner's own setting.
 */
export async function applyReadOnly(ctx: SystemCtx, { ref }: { ref: string }): Promise<void> {
  await mutate(ctx, async ({ tx }) => {
    await lockProject({ tx }, ref)
    const { value, updatedAt } = await readSettings(tx, ref, 'readonly')
    if (updatedAt) await ctx.engine.settings.setReadOnly(ref, value.applied)
  })
}

interface ProjectMode {
  ref: string
  mode: Mode
}

async function activeModes({ db }: SystemCtx): Promise<ProjectMode[]> {
  const rows = await db
    .select({ ref: projects.ref, value: projectSettings.value })
    .from(projectSettings)
    .innerJoin(projects, eq(projects.ref, projectSettings.projectRef))
    .where(and(eq(projectSettings.area, sql`'readonly'`), isNull(projects.removedAt), inArray(projects.status, ACTIVE)))
  return rows.map(({ ref, value }) => ({ ref, mode: parseSettings('readonly', value) }))
}

/** Updates the modes by database size. Disks have at least one gigabyte, so smaller databases are skipped. */
async function updateModesBySize(ctx: SystemCtx, modes: readonly ProjectMode[]): Promise<void> {
  const { settings } = ctx.engine
  const readOnlyBefore = new Set(modes.filter(({ mode }) => mode.enabled).map(({ ref }) => ref))
  const large = await settings.sizesAtLeast(READ_ONLY_SHARE * GIGABYTE)
  // The mode of an unreachable database does not change.
  const small = await settings.sizesOf(Array.from(readOnlyBefore)).catch((error) => {
    ctx.log.error('sizes_unknown', { error: describeError(error) })
    return new Map<string, number>()
  })
  const bytes = new Map([...large, ...small])
  for (const [ref, share] of await sharesOfDisk(ctx, bytes)) {
    if (readOnlyBefore.has(ref) === isFull(share, readOnlyBefore.has(ref))) continue
    const work = async (mode: Mode) => modeForShare(mode, share)
    await changeSettings(ctx, { project: { ref }, area: 'readonly', work }).catch((error) =>
      logFailure(ctx, ref, error),
    )
  }
}

const isFull = (share: number, isReadOnly: boolean): boolean => share >= (isReadOnly ? WRITABLE_SHARE : READ_ONLY_SHARE)

/** Returns the mode for this share of the disk. A mode set by the operator does not change with the size. */
function modeForShare(mode: Mode, share: number): Mode | undefined {
  const enabled = isFull(share, mode.enabled)
  if (enabled === mode.enabled || (mode.enabled && mode.by === 'operator')) return undefined
  return { ...mode, enabled, by: 'size' }
}

async function sharesOfDisk({ db }: SystemCtx, bytes: ReadonlyMap<string, number>): Promise<[string, number][]> {
  if (bytes.size === 0) return []
  const rows = await db
    .select({ ref: projects.ref, disk: projectSettings.value })
    .from(projects)
    .leftJoin(projectSettings, and(eq(projectSettings.projectRef, projects.ref), eq(projectSettings.area, 'disk')))
    .where(
      and(
        inArray(projects.ref, Array.from(bytes.keys())),
        isNull(projects.removedAt),
        ne(projects.status, 'GOING_DOWN'),
      ),
    )
  return rows.map(({ ref, disk }) => [ref, (bytes.get(ref) ?? 0) / (parseSettings('disk', disk).size_gb * GIGABYTE)])
}
