import { and, eq, gt, inArray, isNull, or, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { type DeploymentRow, type FunctionRow, toFunction } from './convert.ts'
import { requireFunctionQuota } from './function-rows.ts'
import { deployableSince } from './remove-deployments.ts'
import type { BulkFunction } from './schema.ts'

type NewRow = typeof functions.$inferInsert

/** Activates bundles for many functions, all or none. A repeated request changes nothing. */
export async function updateFunctions(ctx: Ctx, project: ProjectAccess, list: readonly BulkFunction[]) {
  if (list.length === 0) return { functions: [] }
  const { ref } = project
  const updated = await changeProject(ctx, project, async (mutation) => {
    const [before, bundles] = await Promise.all([currentRows(mutation, ref, list), bundlesOf(ctx, mutation, ref, list)])
    const rows = list.map((input, n) => rowOf(ctx, ref, { input, n, before, bundles }))
    const added = list.filter(({ slug }) => !before.has(slug)).length
    if (added > 0) await requireFunctionQuota(mutation.tx, project, added)
    const written = await upsertRows(ctx, mutation, rows, before)
    await mutation.record('function.bulk_update', { slugs: list.map(({ slug }) => slug) })
    return written
  })
  return { functions: updated }
}

interface Current {
  row: FunctionRow
  deployment: DeploymentRow
}

type Before = Map<string, Current>

async function currentRows({ tx }: Mutation, ref: string, list: readonly BulkFunction[]): Promise<Before> {
  const slugs = list.map(({ slug }) => slug)
  const found = await tx
    .select({ row: functions, deployment: functionDeployments })
    .from(functions)
    .innerJoin(functionDeployments, eq(functionDeployments.id, functions.deploymentId))
    .where(and(eq(functions.projectRef, ref), inArray(functions.slug, slugs)))
  return new Map(found.map((each) => [each.row.slug, each]))
}

interface Bundles {
  /** The latest bundle by slug and digest. */
  byDigest: Map<string, DeploymentRow>
  /** Bundles by slug that no function has used yet, latest last. */
  fresh: Map<string, DeploymentRow[]>
}

async function bundlesOf(ctx: Ctx, { tx }: Mutation, ref: string, list: readonly BulkFunction[]): Promise<Bundles> {
  const { projectRef, slug, sha256, unusedSince, createdAt } = functionDeployments
  const digests = list.flatMap(({ ezbr_sha256: digest }) => digest ?? [])
  const withoutDigest = list.filter(({ ezbr_sha256: digest }) => digest === undefined)
  const isFresh = eq(unusedSince, createdAt)
  const hasDigest = inArray(sha256, digests)
  const isFreshForSlug = and(
    inArray(
      slug,
      withoutDigest.map((each) => each.slug),
    ),
    isFresh,
  )
  const found = await tx
    .select({ row: functionDeployments, isFresh: sql<boolean>`coalesce(${isFresh}, false)` })
    .from(functionDeployments)
    .where(
      and(
        eq(projectRef, ref),
        or(hasDigest, isFreshForSlug),
        or(isNull(unusedSince), gt(unusedSince, deployableSince(ctx.now()))),
      ),
    )
    .orderBy(createdAt)
  return {
    byDigest: new Map(found.map(({ row }) => [`${row.slug} ${row.sha256}`, row])),
    fresh: Map.groupBy(
      found.filter((each) => each.isFresh).map(({ row }) => row),
      (row) => row.slug,
    ),
  }
}

interface RowInput {
  input: BulkFunction
  n: number
  before: Before
  bundles: Bundles
}

function rowOf(ctx: Ctx, ref: string, { input, n, before, bundles }: RowInput): NewRow & { deployment: DeploymentRow } {
  const { slug, name, status, version, verify_jwt: verifyJwt } = input
  const current = before.get(slug)
  const deployment = deploymentFor(input, current, bundles)
  if (!deployment) throw invalid(n, 'ezbr_sha256', 'must be the digest of a bundle made for this slug in the last day')
  requireConsistent(input, n, deployment)
  const at = ctx.now()
  return {
    // The reply to the bundle request has already named this id for a new function.
    id: current?.row.id ?? (input.id === deployment.id ? deployment.id : crypto.randomUUID()),
    projectRef: ref,
    slug,
    name,
    status,
    version,
    verifyJwt: verifyJwt ?? current?.row.verifyJwt ?? true,
    deploymentId: deployment.id,
    createdAt: input.created_at === undefined ? at : new Date(input.created_at),
    updatedAt: at,
    deployment,
  }
}

/** Finds the bundle of a function. The Go CLI sends no digest but the version of the bundle that it has just made. */
function deploymentFor(
  { slug, id, version, ezbr_sha256: sha256 }: BulkFunction,
  current: Current | undefined,
  bundles: Bundles,
) {
  if (current && current.deployment.sha256 === sha256) return current.deployment
  if (sha256 !== undefined) return bundles.byDigest.get(`${slug} ${sha256}`)
  const fresh = bundles.fresh.get(slug) ?? []
  if (!current) return fresh.find((deployment) => deployment.id === id)
  const since = version > current.row.version ? fresh.filter(({ createdAt }) => createdAt >= current.row.updatedAt) : []
  return since.at(-1) ?? current.deployment
}

/** Requires that given paths equal those of the bundle, which cannot change. */
function requireConsistent(input: BulkFunction, n: number, { entrypoint, importMap }: DeploymentRow): void {
  const { import_map: flag, entrypoint_path: from, import_map_path: map } = input
  if (flag !== undefined && flag !== (importMap !== null)) throw invalid(n, 'import_map', MISMATCH)
  if (from && !endsWith(from, entrypoint)) throw invalid(n, 'entrypoint_path', MISMATCH)
  if (map && !endsWith(map, importMap ?? '')) throw invalid(n, 'import_map_path', MISMATCH)
}
const MISMATCH = 'must equal that of the bundle'

const endsWith = (url: string, path: string) =>
  url === path || url.endsWith(`/${path.split('/').map(encodeURIComponent).join('/')}`)

const invalid = (n: number, field: string, message: string) => invalidField(`body.${n}.${field}`, message)

async function upsertRows(
  ctx: Ctx,
  { tx }: Mutation,
  rows: readonly (NewRow & { deployment: DeploymentRow })[],
  before: Before,
) {
  const { name, status, version, verifyJwt, deploymentId, updatedAt } = functions
  const values = rows.map(({ deployment: _, ...row }) => row)
  const written = await tx
    .insert(functions)
    .values(values)
    .onConflictDoUpdate({
      target: [functions.projectRef, functions.slug],
      set: {
        name: sql`excluded.name`,
        status: sql`excluded.status`,
        version: sql`excluded.version`,
        verifyJwt: sql`excluded.verify_jwt`,
        deploymentId: sql`excluded.deployment_id`,
        updatedAt: sql`case when (${name}, ${status}, ${version}, ${verifyJwt}, ${deploymentId}) =
          (excluded.name, excluded.status, excluded.version, excluded.verify_jwt, excluded.deployment_id)
          then ${updatedAt} else excluded.updated_at end`,
      },
    })
    .returning()
  const used = rows.map(({ deploymentId: id }) => id)
  const unused = Array.from(before.values(), ({ deployment }) => deployment.id).filter((id) => !used.includes(id))
  await tx.update(functionDeployments).set({ unusedSince: null }).where(inArray(functionDeployments.id, used))
  if (unused.length > 0)
    await tx.update(functionDeployments).set({ unusedSince: ctx.now() }).where(inArray(functionDeployments.id, unused))
  const bySlug = new Map(written.map((row) => [row.slug, row]))
  return rows.map(({ slug, deployment }) => toFunction(bySlug.get(slug) as FunctionRow, deployment))
}
