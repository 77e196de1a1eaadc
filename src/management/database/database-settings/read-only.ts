import { and, eq, inArray, isNull, ne, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { projectSettings, projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { ACTIVE } from '../../projects/projects/region-values.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import { type Settings, settingsIn } from '../../projects/settings/setting-areas.ts'
import { requireActive, toApiError } from '../database/service.ts'
import { GIGABYTE } from './disk.ts'
import type { ReadOnlyStatus } from './schema.ts'

type Mode = Settings<'readonly'>

const OVERRIDE_MS = 15 * 60_000

/** Shares of the disk: past the one a project becomes read-only, below the other it is writable again. */
const FULL = 0.95
const ROOMY = 0.9

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

/** Writable for a while, whatever the mode is or becomes meanwhile. */
export async function disableReadOnly(ctx: Ctx, project: ProjectAccess): Promise<void> {
  requireActive(project)
  const { ref } = project
  const overrideUntil = new Date(ctx.now().getTime() + OVERRIDE_MS).toISOString()
  await changeSettings(ctx, {
    ref,
    area: 'readonly',
    work: async (mode) => {
      if (mode.applied) await tell(ctx, ref, false)
      return { ...mode, overrideUntil, applied: false }
    },
  })
}

const tell = ({ engine }: SystemCtx, ref: string, readOnly: boolean): Promise<void> =>
  engine.settings.setReadOnly(ref, readOnly).catch((error) => {
    throw toApiError(error)
  })

/** Each project becomes read-only or writable as its size, its operator and its override have it. */
export async function keepReadOnly(ctx: SystemCtx): Promise<void> {
  await judgeSizes(ctx, await activeModes(ctx))
  const modes = await activeModes(ctx)
  const closed = modes.filter(({ mode }) => mustApply(mode, ctx.now()))
  const really = await ctx.engine.settings.filterReadOnly(closed.map(({ ref }) => ref))
  for (const { ref, mode } of modes) {
    const wanted = mustApply(mode, ctx.now())
    if (wanted ? really.has(ref) : !mode.applied) continue
    await apply(ctx, ref).catch((error) => logFailure(ctx, ref, error))
  }
}

const logFailure = ({ log }: SystemCtx, ref: string, error: unknown): void =>
  log.error('read_only_failed', { project: ref, error: describeError(error) })

/** Noted before the database is told: what may have been told must be taken back one day. */
async function apply(ctx: SystemCtx, ref: string): Promise<void> {
  const mode = await changeSettings(ctx, {
    ref,
    area: 'readonly',
    work: async (mode) => {
      const wanted = mustApply(mode, ctx.now())
      if (!wanted && mode.applied) await tell(ctx, ref, false)
      return wanted === mode.applied ? undefined : { ...mode, applied: wanted }
    },
  })
  if (mode.applied) await changeSettings(ctx, { ref, area: 'readonly', work: (mode) => tellApplied(ctx, ref, mode) })
}

/** Under the lock: what was taken back meanwhile stays taken back. */
async function tellApplied(ctx: SystemCtx, ref: string, { applied }: Mode): Promise<undefined> {
  if (applied) await tell(ctx, ref, true)
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
  return rows.map(({ ref, value }) => ({ ref, mode: settingsIn('readonly', value) }))
}

/** No disk is smaller than a gigabyte, so that smaller databases need no look. */
async function judgeSizes(ctx: SystemCtx, modes: readonly ProjectMode[]): Promise<void> {
  const { settings } = ctx.engine
  const limited = new Set(modes.filter(({ mode }) => mode.enabled).map(({ ref }) => ref))
  const large = await settings.sizesAtLeast(FULL * GIGABYTE)
  // Of a database that cannot be reached, nothing is judged.
  const small = await settings.sizesOf(Array.from(limited)).catch((error) => {
    ctx.log.error('sizes_unknown', { error: describeError(error) })
    return new Map<string, number>()
  })
  const bytes = new Map([...large, ...small])
  for (const [ref, share] of await sharesOfDisk(ctx, bytes)) {
    if (limited.has(ref) === isFull(share, limited.has(ref))) continue
    const work = async (mode: Mode) => judged(mode, share)
    await changeSettings(ctx, { ref, area: 'readonly', work }).catch((error) => logFailure(ctx, ref, error))
  }
}

const isFull = (share: number, already: boolean): boolean => share >= (already ? ROOMY : FULL)

/** The operator's word stands, whatever the size. */
function judged(mode: Mode, share: number): Mode | undefined {
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
  return rows.map(({ ref, disk }) => [ref, (bytes.get(ref) ?? 0) / (settingsIn('disk', disk).size_gb * GIGABYTE)])
}
