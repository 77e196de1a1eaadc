import { and, eq, gt, inArray, isNull, or, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../auth/access.ts'
import type { Mutation } from '../../db/mutate.ts'
import { functionDeployments, functions } from '../../db/schema/index.ts'
import type { Ctx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { type DeploymentRow, type FunctionRow, toFunction } from './convert.ts'
import { changeFunctions, requireRoom } from './rows.ts'
import type { BulkFunction } from './schema.ts'
import { deployableSince } from './sweep.ts'

type NewRow = typeof functions.$inferInsert

/** Puts many slugs at what was bundled for them, all or none. The same again changes nothing. */
export async function updateFunctions(ctx: Ctx, project: ProjectAccess, list: readonly BulkFunction[]) {
  const { ref, organizationId } = project
  const functions = await changeFunctions(ctx, ref, async (mutation) => {
    const [before, bundles] = await Promise.all([rowsAt(mutation, ref, list), bundlesOf(ctx, mutation, ref, list)])
    const rows = list.map((wanted, n) => rowOf(ctx, ref, { wanted, n, before, bundles }))
    const added = list.filter(({ slug }) => !before.has(slug)).length
    if (added > 0) await requireRoom(mutation.tx, project, added)
    const written = await write(ctx, mutation, rows, before)
    const detail = { slugs: list.map(({ slug }) => slug) }
    await mutation.trace({ action: 'function.bulk_update', organizationId, projectRef: ref, detail })
    return written
  })
  return { functions }
}

type Before = Map<string, { row: FunctionRow; deployment: DeploymentRow }>

async function rowsAt({ tx }: Mutation, ref: string, list: readonly BulkFunction[]): Promise<Before> {
  const slugs = list.map(({ slug }) => slug)
  const found = await tx
    .select({ row: functions, deployment: functionDeployments })
    .from(functions)
    .innerJoin(functionDeployments, eq(functionDeployments.id, functions.deploymentId))
    .where(and(eq(functions.projectRef, ref), inArray(functions.slug, slugs)))
  return new Map(found.map((each) => [each.row.slug, each]))
}

/** The latest of each slug and digest. */
async function bundlesOf(ctx: Ctx, { tx }: Mutation, ref: string, list: readonly BulkFunction[]) {
  const digests = list.flatMap(({ ezbr_sha256: sha256 }) => sha256 ?? [])
  if (digests.length === 0) return new Map<string, DeploymentRow>()
  const found = await tx
    .select()
    .from(functionDeployments)
    .where(
      and(
        eq(functionDeployments.projectRef, ref),
        inArray(functionDeployments.sha256, digests),
        or(isNull(functionDeployments.unusedSince), gt(functionDeployments.unusedSince, deployableSince(ctx.now()))),
      ),
    )
    .orderBy(functionDeployments.createdAt)
  return new Map(found.map((row) => [`${row.slug} ${row.sha256}`, row]))
}

interface Wanted {
  wanted: BulkFunction
  n: number
  before: Before
  bundles: ReadonlyMap<string, DeploymentRow>
}

function rowOf(ctx: Ctx, ref: string, { wanted, n, before, bundles }: Wanted): NewRow & { deployment: DeploymentRow } {
  const { slug, name, status, version, ezbr_sha256: sha256, verify_jwt: verifyJwt } = wanted
  const known = before.get(slug)
  const stays = sha256 === undefined || known?.deployment.sha256 === sha256
  const deployment = stays ? known?.deployment : bundles.get(`${slug} ${sha256}`)
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
