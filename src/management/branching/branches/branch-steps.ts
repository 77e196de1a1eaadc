import { and, desc, eq, isNotNull, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { EngineUnavailable, Superseded } from '../../../engine/engine.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { actionRuns, type MigrationRow, type RunKind, type RunStep } from '../../../model/tables/index.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import { forgetProject } from '../../../services/gateway/open-project.ts'
import { forgetBackups } from '../../database/backups/remove-backups.ts'
import { applySettings } from '../../database/database-settings/apply-settings.ts'
import { applyMigration, listMigrations, tooLarge } from '../../database/migrations/history.ts'
import { specOf } from '../../projects/projects/database-spec.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { inheritSettings } from '../../projects/settings/inherit-settings.ts'
import { deployToBranch as deploy, deployToParent } from './branch-functions.ts'
import { migrationsOf, pullCommit, seedOf } from './commit-files.ts'
import type { Site } from './jobs.ts'

export type Deed = (ctx: SystemCtx, site: Site) => Promise<void>
type Project = Site['own']

const HEALTH_TIMEOUT_MS = 10_000
/** Of a branch's migrations while its database is made anew: they are in memory together, and in one row. */
const KEPT_BYTES_MAX = 16 * 1024 * 1024

/** The database itself: all of the parent's, or its schema alone, as of one moment. */
async function clone(ctx: SystemCtx, { branch, own, parent, fence, log }: Site): Promise<void> {
  await log(`copying ${branch.withData ? 'schema and data' : 'the schema'} of ${parent.ref} to ${own.ref}`)
  const [fromRunnerPassword, to] = await Promise.all([runnerPasswordOf(ctx, parent), specOf(ctx, own)])
  await ctx.engine.copy({ from: parent.ref, fromRunnerPassword, to, data: branch.withData }, fence)
}

/**
 * A version that the parent has left behind cannot be had from a copy of it: then the database begins empty, and all the
 * migrations up to that version are run.
 */
async function cloneAgain(ctx: SystemCtx, site: Site): Promise<void> {
  const { own, run, fence, log } = site
  await requireCopyable(ctx, site)
  const empty = await isBehindParent(ctx, site)
  await log(`removing the database of ${own.ref}`)
  await ctx.engine.remove(own.ref, fence)
  await forgetBackups(ctx, own.ref)
  if (!empty) return clone(ctx, site)
  await log(`beginning with an empty database, as the parent is beyond ${run.migrationVersion}`)
  await ctx.engine.create({ ...(await specOf(ctx, own)), beside: site.parent.ref }, fence)
}

/** Before the database goes away, and once. What else that takes is asked here, too, while nothing is lost yet. */
export async function keepHistory(ctx: SystemCtx, site: Site): Promise<void> {
  const { own, run, log } = site
  if (await hasKept(ctx, site)) return
  const found = new Map<string, MigrationRow>()
  const earlier = await keptEarlier(ctx, site.branch.projectRef)
  for (const migration of [...earlier, ...(await historyOf(ctx, site, earlier))])
    found.set(migration.version, migration)
  const kept = [...found.values()].sort((a, b) => (a.version < b.version ? -1 : 1))
  const { migrationVersion: version } = run
  if (version !== null && !found.has(version)) throw new PermanentError(`the branch has no migration ${version}`)
  if (JSON.stringify(kept).length > KEPT_BYTES_MAX) throw tooLarge(own, KEPT_BYTES_MAX)
  await requireCopyable(ctx, site)
  await isBehindParent(ctx, site)
  await ctx.db.update(actionRuns).set({ kept }).where(eq(actionRuns.id, run.id))
  await log(`keeping ${kept.length} migrations of the branch`)
}

async function hasKept({ db }: SystemCtx, { run }: Site): Promise<boolean> {
  const kept = and(eq(actionRuns.id, run.id), isNotNull(actionRuns.kept))
  return (await db.select({ id: actionRuns.id }).from(actionRuns).where(kept)).length > 0
}

/** What the last reset had kept, if it failed: perhaps not all of it is in the database. */
export async function keptEarlier({ db }: Pick<SystemCtx, 'db'>, projectRef: string): Promise<readonly MigrationRow[]> {
  const [failed] = await db
    .select({ kept: actionRuns.kept })
    .from(actionRuns)
    .where(and(eq(actionRuns.projectRef, projectRef), isNotNull(actionRuns.kept)))
    .orderBy(desc(actionRuns.createdAt), desc(actionRuns.id))
    .limit(1)
  return failed?.kept ?? []
}

async function historyOf(ctx: SystemCtx, site: Site, earlier: readonly MigrationRow[]): Promise<MigrationRow[]> {
  const { own, fence, log } = site
  const history: MigrationRow[] = []
  try {
    for await (const migration of listMigrations(ctx, own, { fence, bytesMax: KEPT_BYTES_MAX })) history.push(migration)
    return history
  } catch (error) {
    if (!(error instanceof EngineUnavailable) || (earlier.length === 0 && (await wasEverThere(ctx, site)))) throw error
    await log(`nothing can be read of the database of ${own.ref}: ${error.message}`)
    return []
  }
}

/** A database that no run has found healthy has nothing that is not its parent's. */
async function wasEverThere({ db }: SystemCtx, { branch }: Site): Promise<boolean> {
  const healthy = sql`${actionRuns.steps} @> '[{"name": "health", "status": "EXITED"}]'`
  const runs = await db
    .select({ id: actionRuns.id })
    .from(actionRuns)
    .where(and(eq(actionRuns.projectRef, branch.projectRef), healthy))
    .limit(1)
  return runs.length > 0
}

/** What it is made anew from may have gone since the run was asked for. */
async function requireCopyable({ engine }: SystemCtx, { parent: { ref } }: Site): Promise<void> {
  const { healthy, error } = await engine.health(ref, HEALTH_TIMEOUT_MS)
  if (!healthy) throw new EngineUnavailable(`nothing can be copied from the parent ${ref}: ${error}`)
}

async function isBehindParent(ctx: SystemCtx, { run, parent, fence }: Site): Promise<boolean> {
  const { migrationVersion: version } = run
  if (version === null) return false
  for await (const migration of listMigrations(ctx, parent, { fence })) if (migration.version > version) return true
  return false
}

async function migrateAgain(ctx: SystemCtx, site: Site): Promise<void> {
  const [run] = await ctx.db.select({ kept: actionRuns.kept }).from(actionRuns).where(eq(actionRuns.id, site.run.id))
  await applyTo(ctx, site, site.own, upTo(site.run.migrationVersion, run?.kept ?? []))
}

function upTo(version: string | null, migrations: readonly MigrationRow[]): readonly MigrationRow[] {
  return version === null ? migrations : migrations.filter((migration) => migration.version <= version)
}

/** Says what there is to do, and that the version asked for exists. */
const pullFrom =
  (sourceOf: (site: Site) => Project): Deed =>
  async (ctx, site) => {
    const { run, fence, log } = site
    const { migrationVersion: version } = run
    const source = sourceOf(site)
    let count = 0
    let found = version === null
    for await (const migration of listMigrations(ctx, source, { fence })) {
      count += 1
      found ||= migration.version === version
    }
    await log(`${source.ref} has ${count} migrations`)
    if (!found && run.kind !== 'reset') throw new PermanentError(`${source.ref} has no migration ${version}`)
  }

const migrateBetween =
  (sourceOf: (site: Site) => Project, targetOf: (site: Site) => Project): Deed =>
  async (ctx, site) => {
    const { run, fence } = site
    const { migrationVersion: version } = run
    const wanted = async function* () {
      for await (const migration of listMigrations(ctx, sourceOf(site), { fence }))
        if (version === null || migration.version <= version) yield migration
    }
    await applyTo(ctx, site, targetOf(site), wanted())
  }

type Migrations = Iterable<MigrationRow> | AsyncIterable<MigrationRow>

/** One transaction each: what is there already is passed over, so that a run that died goes on where it stopped. */
async function applyTo(ctx: SystemCtx, site: Site, target: Project, migrations: Migrations): Promise<void> {
  const { log, fence } = site
  const present = new Map<string, string>()
  for await (const { version, statements } of listMigrations(ctx, target, { fence }))
    present.set(version, await digestOf(statements))
  let applied = 0
  for await (const migration of migrations) {
    const same = present.get(migration.version)
    if (same !== undefined) {
      await requireSame(site, migration, same, target)
      continue
    }
    if (!(await fence())) throw new Superseded(`somebody else has taken over ${target.ref}`)
    await log(`applying ${[migration.version, migration.name].filter(Boolean).join(' ')}`)
    await applyMigration(ctx, target, migration)
    applied += 1
  }
  await log(`${applied} migrations applied to ${target.ref}`)
}

/**
 * Versions are times in seconds, so two people may take the same one: the second migration would be passed over and be missed.
 * A file of a repository may also have been edited since, or recorded by a tool that leaves comments out.
 */
async function requireSame(
  { run, log }: Site,
  { version, statements }: MigrationRow,
  present: string,
  { ref }: Project,
): Promise<void> {
  const digest = await digestOf(statements)
  if (digest === '' || present === '' || digest === present) return
  if (run.gitConfig) return log(`${version} was applied with another text, and is passed over`)
  throw new PermanentError(`${ref} has another migration ${version}: give one of the two a version of its own`)
}

/** Of its text, however it was cut into statements; empty where there is none. */
async function digestOf(statements: readonly string[] | null | undefined): Promise<string> {
  const text = (statements ?? [])
    .join(';')
    .replace(/[\s;]+/g, ' ')
    .trim()
  return text === '' ? '' : sha256Of(text)
}

async function health({ engine }: SystemCtx, { own, parent, run, log }: Site): Promise<void> {
  for (const { ref } of run.kind === 'merge' ? [own, parent] : [own]) {
    const { healthy, error } = await engine.health(ref, HEALTH_TIMEOUT_MS)
    if (!healthy) throw new EngineUnavailable(error ?? `the database of ${ref} does not answer`)
    await log(`${ref} answers`)
  }
}

async function configure(ctx: SystemCtx, { own, parent, log }: Site): Promise<void> {
  const leftOut = await inheritSettings(ctx, { from: parent.ref, to: own.ref })
  forgetProject(own.ref)
  if (leftOut.length > 0)
    await log(`left as they were, as the parent's contradict the branch's own: ${leftOut.join(', ')}`)
  await applySettings(ctx, own)
  await log('settings of the parent applied')
}

/** A branch without data gets the parent's buckets, empty; with data they came with the copy. */
async function seed(ctx: SystemCtx, { branch, own, parent, log }: Site): Promise<void> {
  if (branch.withData) return log('the data came with the copy')
  const batch = async (project: Project, text: string, params: readonly unknown[] = []) =>
    ctx.engine.runBatch({
      ref: project.ref,
      runnerPassword: await runnerPasswordOf(ctx, project),
      statements: [{ text, params }],
    })
  const [[row] = []] = await batch(
    parent,
    `select coalesce(json_agg(b), '[]')::text as buckets, count(*)::int as count from storage.buckets b`,
  )
  await batch(
    own,
    'insert into storage.buckets select * from json_populate_recordset(null::storage.buckets, $1::json) on conflict do nothing',
    [row?.buckets],
  )
  await log(`${row?.count} buckets made`)
}

const ofOwn = ({ own }: Site) => own
const ofParent = ({ parent }: Site) => parent
const pullParent = pullFrom(ofParent)

const migrateToCommit: Deed = async (ctx, site) => applyTo(ctx, site, site.own, await migrationsOf(ctx, site))

const seedFromCommit: Deed = async (ctx, site) => {
  if (site.run.kind === 'create') await seed(ctx, site)
  await seedOf(ctx, site)
}

/** A branch of a repository's has what the commit says beside what it is copied from. */
const orOfCommit =
  (usual: Deed, ofCommit: Deed): Deed =>
  (ctx, site) =>
    (site.run.gitConfig ? ofCommit : usual)(ctx, site)

export const DEEDS: Record<RunKind, Partial<Record<RunStep, Deed>>> = {
  create: {
    clone,
    pull: orOfCommit(pullParent, pullCommit),
    health,
    configure,
    migrate: orOfCommit(migrateBetween(ofParent, ofOwn), migrateToCommit),
    seed: orOfCommit(seed, seedFromCommit),
    deploy,
  },
  push: { pull: pullParent, health, migrate: migrateBetween(ofParent, ofOwn), deploy },
  merge: { pull: pullFrom(ofOwn), health, migrate: migrateBetween(ofOwn, ofParent), deploy: deployToParent },
  reset: { clone: cloneAgain, pull: pullParent, health, configure, migrate: migrateAgain, seed, deploy },
  commit: { pull: pullCommit, health, migrate: migrateToCommit, seed: seedFromCommit },
}
