import { and, eq, gt, inArray, isNull, or, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { type DeploymentRow, type FunctionRow, toFunction } from './convert.ts'
import { changeFunctions, requireRoom } from './function-rows.ts'
import { deployableSince } from './remove-deployments.ts'
import type { BulkFunction } from './schema.ts'

type NewRow = typeof functions.$inferInsert

/** Puts many slugs at what was bundled for them, all or none. The same again changes nothing. */
export async function updateFunctions(ctx: Ctx, project: ProjectAccess, list: readonly BulkFunction[]) {
  if (list.length === 0) return { functions: [] }
  const { ref, organizationId } = project
  const updated = await changeFunctions(ctx, ref, async (mutation) => {
    const [before, bundles] = await Promise.all([rowsAt(mutation, ref, list), bundlesOf(ctx, mutation, ref, list)])
    const rows = list.map((wanted, n) => rowOf(ctx, ref, { wanted, n, before, bundles }))
    const added = list.filter(({ slug }) => !before.has(slug)).length
    if (added > 0) await requireRoom(mutation.tx, project, added)
    const written = await write(ctx, mutation, rows, before)
    const detail = { slugs: list.map(({ slug }) => slug) }
    await mutation.trace({ action: 'function.bulk_update', organizationId, projectRef: ref, detail })
    return written
  })
  return { functions: updated }
}

interface Known {
  row: FunctionRow
  deployment: DeploymentRow
}

type Before = Map<string, Known>

async function rowsAt({ tx }: Mutation, ref: string, list: readonly BulkFunction[]): Promise<Before> {
  const slugs = list.map(({ slug }) => slug)
  const found = await tx
    .select({ row: functions, deployment: functionDeployments })
    .from(functions)
    .innerJoin(functionDeployments, eq(functionDeployments.id, functions.deploymentId))
    .where(and(eq(functions.projectRef, ref), inArray(functions.slug, slugs)))
  return new Map(found.map((each) => [each.row.slug, each]))
}

interface Bundles {
  /** By slug and digest, the latest of each. */
  byDigest: Map<string, DeploymentRow>
  /** By slug, what no function has been at yet, the latest last. */
  fresh: Map<string, DeploymentRow[]>
}

async function bundlesOf(ctx: Ctx, { tx }: Mutation, ref: string, list: readonly BulkFunction[]): Promise<Bundles> {
  const { projectRef, slug, sha256, unusedSince, createdAt } = functionDeployments
  const digests = list.flatMap(({ ezbr_sha256: digest }) => digest ?? [])
  const unnamed = list.filter(({ ezbr_sha256: digest }) => digest === undefined)
  const isFresh = eq(unusedSince, createdAt)
  const isNamed = inArray(sha256, digests)
  const isMeant = and(
    inArray(
      slug,
      unnamed.map((each) => each.slug),
    ),
    isFresh,
  )
  const found = await tx
    .select({ row: functionDeployments, isFresh: sql<boolean>`coalesce(${isFresh}, false)` })
    .from(functionDeployments)
    .where(
      and(
        eq(projectRef, ref),
        or(isNamed, isMeant),
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

interface Wanted {
  wanted: BulkFunction
  n: number
  before: Before
  bundles: Bundles
}

function rowOf(ctx: Ctx, ref: string, { wanted, n, before, bundles }: Wanted): NewRow & { deployment: DeploymentRow } {
  const { slug, name, status, version, verify_jwt: verifyJwt } = wanted
  const known = before.get(slug)
  const deployment = deploymentFor(wanted, known, bundles)
  if (!deployment) throw refused(n, 'ezbr_sha256', 'names nothing that was bundled for this slug in the last day')
  refuseContradiction(wanted, n, deployment)
  const at = ctx.now()
  return {
    // Whoever bundled a new function was told that it would have this id.
    id: known?.row.id ?? (wanted.id === deployment.id ? deployment.id : crypto.randomUUID()),
    projectRef: ref,
    slug,
    name,
    status,
    version,
    verifyJwt: verifyJwt ?? known?.row.verifyJwt ?? true,
    deploymentId: deployment.id,
    createdAt: wanted.created_at === undefined ? at : new Date(wanted.created_at),
    updatedAt: at,
    deployment,
  }
}

/** Clients of the Go line name no digest: they mean what they had bundled just before, and say so by the version that they were promised. */
function deploymentFor(
  { slug, id, version, ezbr_sha256: sha256 }: BulkFunction,
  known: Known | undefined,
  bundles: Bundles,
) {
  if (known && known.deployment.sha256 === sha256) return known.deployment
  if (sha256 !== undefined) return bundles.byDigest.get(`${slug} ${sha256}`)
  const fresh = bundles.fresh.get(slug) ?? []
  if (!known) return fresh.find((deployment) => deployment.id === id)
  const since = version > known.row.version ? fresh.filter(({ createdAt }) => createdAt >= known.row.updatedAt) : []
  return since.at(-1) ?? known.deployment
}

/** What a bundle is made of was decided when it was made. */
function refuseContradiction(wanted: BulkFunction, n: number, { entrypoint, importMap }: DeploymentRow): void {
  const { import_map: flag, entrypoint_path: from, import_map_path: map } = wanted
  if (flag !== undefined && flag !== (importMap !== null)) throw refused(n, 'import_map', OTHER)
  if (from && !endsWith(from, entrypoint)) throw refused(n, 'entrypoint_path', OTHER)
  if (map && !endsWith(map, importMap ?? '')) throw refused(n, 'import_map_path', OTHER)
}
const OTHER = 'is not that of the bundle'

const endsWith = (url: string, path: string) =>
  url === path || url.endsWith(`/${path.split('/').map(encodeURIComponent).join('/')}`)

const refused = (n: number, field: string, message: string) =>
  new ApiError('bad_request.validation_failed', {
    issues: [{ field: `body.${n}.${field}`, code: 'invalid', message }],
  })

async function write(
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
  const left = Array.from(before.values(), ({ deployment }) => deployment.id).filter((id) => !used.includes(id))
  await tx.update(functionDeployments).set({ unusedSince: null }).where(inArray(functionDeployments.id, used))
  if (left.length > 0)
    await tx.update(functionDeployments).set({ unusedSince: ctx.now() }).where(inArray(functionDeployments.id, left))
  const bySlug = new Map(written.map((row) => [row.slug, row]))
  return rows.map(({ slug, deployment }) => toFunction(bySlug.get(slug) as FunctionRow, deployment))
}
