import { and, arrayContains, desc, eq, isNotNull, ne } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { EngineUnavailable, Superseded } from '../../../engine/engine-errors.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import { actionRuns, type MigrationRow, projectTasks, type RunKind, type RunStep } from '../../../model/tables/index.ts'
import { JSON_PARAMETER_BYTES_MAX, jsonParameterBytes } from '../../../platform/db/json-parameter.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import { forgetProject } from '../../../services/gateway/open-project.ts'
import { abortUploads } from '../../../services/storage/sweep-bytes.ts'
import { markBackupsRemoved } from '../../database/backups/remove-backups.ts'
import { applySettings } from '../../database/database-settings/apply-settings.ts'
import { applyMigration, historyTooLarge, listMigrations } from '../../database/migrations/history.ts'
import { endReplicaAssociations } from '../../database/private-link/end-associations.ts'
import { mutate } from '../../kernel/mutate.ts'
import { incrementSecretsGeneration } from '../../programs/secrets/service.ts'
import { specOf } from '../../projects/projects/database-spec.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { inheritSettings } from '../../projects/settings/inherit-settings.ts'
import { deployToBranch as deploy, deployToParent } from './branch-functions.ts'
import { applySeed, pullCommit, readMigrations } from './commit-files.ts'
import { type Log, type StepAction, type StepInput, storeWithRun } from './runs.ts'

type Project = StepInput['own']

const HEALTH_TIMEOUT_MS = 10_000

/** Copies the parent's database, or only its schema, as of a single point in time. */
async function clone(ctx: SystemCtx, { branch, own, parent, fence, log }: StepInput): Promise<void> {
  await log(`copying ${branch.withData ? 'schema and data' : 'the schema'} of ${parent.ref} to ${own.ref}`)
  const [fromRunnerPassword, to] = await Promise.all([runnerPasswordOf(ctx, parent), specOf(ctx, own)])
  await ctx.engine.copy({ from: parent.ref, fromRunnerPassword, to, data: branch.withData }, fence)
}

/**
 * Creates the database again. If the parent has newer migrations than the requested version, the database starts empty and all
 * migrations up to that version are applied, as a copy of the parent would contain the newer ones.
 */
async function recloneDatabase(ctx: SystemCtx, input: StepInput): Promise<void> {
  const { own, run, fence, log } = input
  await requireCopyable(ctx, input)
  const empty = await isBehindParent(ctx, input)
  await log(`removing the database of ${own.ref}`)
  await abortUploads(ctx, own.ref)
  const replicas = ctx.engine.replicas?.list(own) ?? []
  for (const { identifier } of replicas) await log(`removing the read replica ${identifier}`)
  await ctx.engine.remove(own.ref, fence)
  await markBackupsRemoved(ctx, own.ref)
  await mutate(ctx, (mutation) => endReplicaAssociations(mutation, own.ref, ctx.now()))
  if (empty) {
    await log(`starting with an empty database, as the parent has migrations after ${run.migrationVersion}`)
    await ctx.engine.create({ ...(await specOf(ctx, own)), beside: input.parent.ref }, fence)
  } else await clone(ctx, input)
  // Programs keep the old database address in their environment until they restart.
  await incrementSecretsGeneration({ tx: ctx.db }, own.ref)
}

/** Saves the history of the branch once, before its database is removed, and checks the other requirements of the reset. */
export async function saveHistory(ctx: SystemCtx, input: StepInput): Promise<void> {
  const { own, run, log } = input
  if (await hasSavedHistory(ctx, input)) return
  const found = new Map<string, MigrationRow>()
  const earlier = await readSavedHistory(ctx, input.branch.projectRef)
  const ofParent = await digestsOf(ctx, input, input.parent)
  const parentDigests = new Set(ofParent.values())
  for (const migration of earlier) found.set(migration.version, migration)
  for (const migration of await readHistory(ctx, input, earlier)) {
    // A migration that a failed reset has copied from the parent is not the branch's own.
    const isCopied = parentDigests.has(await digestOf(migration.statements))
    if (!isCopied || !found.has(migration.version)) found.set(migration.version, migration)
  }
  const history = [...found.values()].sort((a, b) => (a.version < b.version ? -1 : 1))
  const { migrationVersion: version } = run
  if (version !== null && !found.has(version)) throw new PermanentError(`the branch has no migration ${version}`)
  if (jsonParameterBytes(history) > JSON_PARAMETER_BYTES_MAX) throw historyTooLarge(own, JSON_PARAMETER_BYTES_MAX)
  await requireCopyable(ctx, input)
  if (!(await isBehindParent(ctx, input))) {
    for (const migration of selectUpTo(version, history))
      await requireSameMigration(input, migration, ofParent, input.parent)
  }
  const ofBranch = eq(actionRuns.projectRef, input.branch.projectRef)
  await storeWithRun(ctx, run, { kept: history })
  // This history contains what earlier runs have saved.
  await ctx.db
    .update(actionRuns)
    .set({ kept: null })
    .where(and(ofBranch, ne(actionRuns.id, run.id), isNotNull(actionRuns.kept)))
  await log(`saving ${history.length} migrations of the branch`)
}

async function hasSavedHistory({ db }: SystemCtx, { run }: StepInput): Promise<boolean> {
  const isSaved = and(eq(actionRuns.id, run.id), isNotNull(actionRuns.kept))
  return (await db.select({ id: actionRuns.id }).from(actionRuns).where(isSaved)).length > 0
}

/** Reads the history that a failed reset has saved, as the database may not contain all of it. */
export async function readSavedHistory(
  { db }: Pick<SystemCtx, 'db'>,
  projectRef: string,
): Promise<readonly MigrationRow[]> {
  const [failed] = await db
    .select({ kept: actionRuns.kept })
    .from(actionRuns)
    .where(and(eq(actionRuns.projectRef, projectRef), isNotNull(actionRuns.kept)))
    .orderBy(desc(actionRuns.createdAt), desc(actionRuns.id))
    .limit(1)
  return failed?.kept ?? []
}

async function readHistory(
  ctx: SystemCtx,
  input: StepInput,
  earlier: readonly MigrationRow[],
): Promise<MigrationRow[]> {
  const { own, fence, log } = input
  const history: MigrationRow[] = []
  try {
    for await (const migration of listMigrations(ctx, own, { fence, bytesMax: JSON_PARAMETER_BYTES_MAX }))
      history.push(migration)
    return history
  } catch (error) {
    if (!(error instanceof EngineUnavailable) || (earlier.length === 0 && (await wasEverHealthy(ctx, input))))
      throw error
    await log(`the database of ${own.ref} cannot be read: ${error.message}`)
    return []
  }
}

/**
 * Whether a run has ever found the database healthy. If none has, the database contains nothing of the branch. The
 * statuses of a run's steps do not tell, because clients can set them.
 */
async function wasEverHealthy({ db }: SystemCtx, { branch }: StepInput): Promise<boolean> {
  const runs = await db
    .select({ id: actionRuns.id })
    .from(actionRuns)
    .innerJoin(projectTasks, eq(projectTasks.id, actionRuns.taskId))
    .where(and(eq(actionRuns.projectRef, branch.projectRef), arrayContains(projectTasks.stepsDone, ['health'])))
    .limit(1)
  return runs.length > 0
}

/** Checks the parent, which may have become unavailable since the run was requested. */
async function requireCopyable({ engine }: SystemCtx, { parent: { ref } }: StepInput): Promise<void> {
  const { healthy, error } = await engine.health(ref, HEALTH_TIMEOUT_MS)
  if (!healthy) throw new EngineUnavailable(`the parent ${ref} cannot be copied: ${error}`)
}

async function isBehindParent(ctx: SystemCtx, { run, parent, fence }: StepInput): Promise<boolean> {
  const { migrationVersion: version } = run
  if (version === null) return false
  for await (const migration of listMigrations(ctx, parent, { fence })) if (migration.version > version) return true
  return false
}

async function remigrate(ctx: SystemCtx, input: StepInput): Promise<void> {
  const [run] = await ctx.db.select({ kept: actionRuns.kept }).from(actionRuns).where(eq(actionRuns.id, input.run.id))
  await applyMigrations(ctx, input, input.own, selectUpTo(input.run.migrationVersion, run?.kept ?? []))
}

function selectUpTo(version: string | null, migrations: readonly MigrationRow[]): readonly MigrationRow[] {
  return version === null ? migrations : migrations.filter((migration) => migration.version <= version)
}

/** Logs the migrations of the source, and checks that the requested version exists. */
const pullFrom =
  (sourceOf: (input: StepInput) => Project): StepAction =>
  async (ctx, input) => {
    const { run, fence, log } = input
    const { migrationVersion: version } = run
    const source = sourceOf(input)
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
  (sourceOf: (input: StepInput) => Project, targetOf: (input: StepInput) => Project): StepAction =>
  async (ctx, input) => {
    const { run, fence } = input
    const { migrationVersion: version } = run
    const selected = async function* () {
      for await (const migration of listMigrations(ctx, sourceOf(input), { fence }))
        if (version === null || migration.version <= version) yield migration
    }
    await applyMigrations(ctx, input, targetOf(input), selected())
  }

type Migrations = Iterable<MigrationRow> | AsyncIterable<MigrationRow>

/** Applies migrations, one transaction each. Those already applied are skipped, so an interrupted run continues where it stopped. */
async function applyMigrations(
  ctx: SystemCtx,
  input: StepInput,
  target: Project,
  migrations: Migrations,
): Promise<void> {
  const { fence } = input
  const log = limitLog(input.log)
  const present = await digestsOf(ctx, input, target)
  let applied = 0
  for await (const migration of migrations) {
    await requireSameMigration({ ...input, log }, migration, present, target)
    if (present.has(migration.version)) continue
    if (!(await fence())) throw new Superseded(`another consumer has taken over the run of ${target.ref}`)
    await log(`applying ${[migration.version, migration.name].filter(Boolean).join(' ')}`)
    await applyMigration(ctx, target, migration)
    applied += 1
  }
  await input.log(`${applied} migrations applied to ${target.ref}`)
}

const MIGRATIONS_LOGGED_MAX = 1_000
const MIGRATION_LINE_LENGTH_MAX = 200

/** Limits a log with a line per migration: neither the migrations of a history nor the lengths of their names have a small maximum. */
function limitLog(log: Log): Log {
  let count = 0
  return async (line) => {
    count += 1
    if (count <= MIGRATIONS_LOGGED_MAX) await log(line.slice(0, MIGRATION_LINE_LENGTH_MAX))
    else if (count === MIGRATIONS_LOGGED_MAX + 1) await log('further migrations are only counted')
  }
}

/** The digests of a project's migrations by their versions. */
async function digestsOf(ctx: SystemCtx, { fence }: StepInput, project: Project): Promise<Map<string, string>> {
  const digests = new Map<string, string>()
  for await (const { version, statements } of listMigrations(ctx, project, { fence }))
    digests.set(version, await digestOf(statements))
  return digests
}

/**
 * Refuses a different migration with an applied version: versions are times in seconds, so two people may choose the same one. For
 * a commit, the difference is only logged: its file may have been edited, or applied by a tool that drops comments.
 */
async function requireSameMigration(
  { run, log }: StepInput,
  { version, statements }: MigrationRow,
  applied: ReadonlyMap<string, string>,
  { ref }: Project,
): Promise<void> {
  const present = applied.get(version)
  const digest = await digestOf(statements)
  if (!digest || !present || digest === present) return
  if (run.gitConfig) return log(`${version} was applied with a different text, and is skipped`)
  throw new PermanentError(`${ref} has a different migration ${version}: change the version of one of them`)
}

/** Digest of the text, independent of its division into statements; empty if there is no text. */
async function digestOf(statements: readonly string[] | null | undefined): Promise<string> {
  const text = (statements ?? [])
    .join(';')
    .replace(/[\s;]+/g, ' ')
    .trim()
  return text === '' ? '' : sha256Of(text)
}

async function checkHealth({ engine }: SystemCtx, { own, parent, run, log }: StepInput): Promise<void> {
  for (const { ref } of run.kind === 'merge' ? [own, parent] : [own]) {
    const { healthy, error } = await engine.health(ref, HEALTH_TIMEOUT_MS)
    if (!healthy) throw new EngineUnavailable(error ?? `the database of ${ref} does not respond`)
    await log(`${ref} responds`)
  }
}

async function configure(ctx: SystemCtx, { own, parent, log }: StepInput): Promise<void> {
  const leftOut = await inheritSettings(ctx, { from: parent.ref, to: own.ref })
  forgetProject(own.ref)
  if (leftOut.length > 0)
    await log(`unchanged, as the parent's values contradict the branch's own: ${leftOut.join(', ')}`)
  await applySettings(ctx, own)
  await log('settings of the parent applied')
}

/** Creates the parent's buckets, empty, in a branch without data; a branch with data has copies of them. */
async function seed(ctx: SystemCtx, { branch, own, parent, log }: StepInput): Promise<void> {
  if (branch.withData) return log('the data came with the copy')
  const batch = async (project: Project, text: string, params: readonly unknown[] = []) =>
    ctx.engine.runBatch({
      ref: project.ref,
      runnerPassword: await runnerPasswordOf(ctx, project),
      statements: [{ text, params }],
    })
  let count = 0
  for (let after: unknown = ''; after !== null; ) {
    const [[page] = []] = await batch(parent, BUCKETS, [after])
    await batch(
      own,
      'insert into storage.buckets select * from json_populate_recordset(null::storage.buckets, $1::json) on conflict do nothing',
      [page?.buckets],
    )
    count += Number(page?.count)
    after = page?.last ?? null
  }
  await log(`${count} buckets created`)
}

/** Selects a page of buckets after an id. One request cannot hold all buckets of a large project. */
const BUCKETS = `select coalesce(json_agg(b), '[]')::text as buckets, count(*)::int as count, max(id) as last
  from (select * from storage.buckets where id > $1 order by id limit 1000) b`

const ownOf = ({ own }: StepInput) => own
const parentOf = ({ parent }: StepInput) => parent
const pullParent = pullFrom(parentOf)

const migrateToCommit: StepAction = async (ctx, input) =>
  applyMigrations(ctx, input, input.own, await readMigrations(ctx, input))

const seedFromCommit: StepAction = async (ctx, input) => {
  if (input.run.kind !== 'commit') await seed(ctx, input)
  await applySeed(ctx, input)
}

/** Chooses between the action for a branch and that for a commit, which uses the files of the repository. */
const chooseByRun =
  (forBranch: StepAction, forCommit: StepAction): StepAction =>
  (ctx, input) =>
    (input.run.gitConfig ? forCommit : forBranch)(ctx, input)

/** Steps that complete a branch whose database exists. */
const FINISH = {
  pull: chooseByRun(pullParent, pullCommit),
  health: checkHealth,
  configure,
  migrate: chooseByRun(migrateBetween(parentOf, ownOf), migrateToCommit),
  seed: chooseByRun(seed, seedFromCommit),
  deploy,
}

export const STEP_ACTIONS: Record<RunKind, Partial<Record<RunStep, StepAction>>> = {
  create: { clone, ...FINISH },
  push: { pull: pullParent, health: checkHealth, migrate: migrateBetween(parentOf, ownOf), deploy },
  merge: {
    pull: pullFrom(ownOf),
    health: checkHealth,
    migrate: migrateBetween(ownOf, parentOf),
    deploy: deployToParent,
  },
  reset: { clone: recloneDatabase, pull: pullParent, health: checkHealth, configure, migrate: remigrate, seed, deploy },
  commit: { pull: pullCommit, health: checkHealth, migrate: migrateToCommit, seed: seedFromCommit },
  finish: FINISH,
}
