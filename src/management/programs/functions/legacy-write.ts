import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functions } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { toFunction } from './convert.ts'
import { deploy, refused, type Settings } from './deploy-function.ts'
import { makeDeployment } from './deployment.ts'
import { bySlug, changeFunctions, type Deployed, lookAt } from './function-rows.ts'
import { Slug, type Write, type WriteOptions } from './schema.ts'
import { findFunction } from './service.ts'

const DEFAULT_ENTRYPOINT = 'index.ts'

type Body = Write | Uint8Array<ArrayBuffer>

/** Deprecated: a function that is one file. */
export async function createFunction(ctx: Ctx, project: ProjectAccess, query: WriteOptions, body: Body) {
  const { text, fields } = read(body)
  const slug = fields.slug ?? requireSlug(query.slug)
  refuseImportMap(query)
  if (await lookAt(ctx, project, slug)) throw new ApiError('conflict.function_slug', { detail: slug })
  const entrypoint = query.entrypoint_path ?? DEFAULT_ENTRYPOINT
  const deployment = await makeDeployment(ctx, project.ref, oneFile(slug, entrypoint, text ?? ''))
  const row = await deploy(ctx, project, deployment, settingsOf(fields, query), { exists: false })
  return toFunction(row, deployment)
}

function requireSlug(slug: string | undefined): string {
  const { data, error } = Slug.safeParse(slug ?? '')
  if (data !== undefined) return data
  throw refused({ field: 'query.slug', code: 'invalid', message: error?.issues[0]?.message ?? '' })
}

/** With a body the function becomes that one file; without, its settings change. */
export async function updateFunction(
  ctx: Ctx,
  project: ProjectAccess,
  { slug, query, body }: { slug: string; query: WriteOptions; body: Body | undefined },
) {
  if (query.slug !== undefined && query.slug !== slug)
    throw refused({ field: 'query.slug', code: 'immutable', message: 'a function keeps its slug' })
  const found = await findFunction(ctx, project.ref, slug)
  const { text, fields } = body === undefined ? { fields: {}, text: undefined } : read(body)
  const settings = settingsOf(fields, query)
  if (text === undefined) {
    refuseOtherFiles(found, query)
    const isNothing = settings.name === undefined && settings.verifyJwt === undefined
    if (isNothing) return toFunction(found.row, found.deployment)
    return configure(ctx, project, found, settings)
  }
  refuseImportMap(query)
  const entrypoint = query.entrypoint_path ?? found.deployment.entrypoint
  const deployment = await makeDeployment(ctx, project.ref, oneFile(slug, entrypoint, text))
  return toFunction(await deploy(ctx, project, deployment, settings, { exists: true }), deployment)
}

async function configure(ctx: Ctx, { ref, organizationId }: ProjectAccess, found: Deployed, settings: Settings) {
  const { slug } = found.row
  const { name, verifyJwt } = settings
  const row = await changeFunctions(ctx, ref, async (mutation) => {
    const [row] = await mutation.tx
      .update(functions)
      .set({ ...(name !== undefined && { name }), ...(verifyJwt !== undefined && { verifyJwt }), updatedAt: ctx.now() })
      .where(bySlug(ref, slug))
      .returning()
    if (!row) throw new ApiError('not_found.function')
    const fields = Object.keys(settings).filter((key) => settings[key as keyof Settings] !== undefined)
    await mutation.trace({ action: 'function.update', organizationId, projectRef: ref, detail: { slug, fields } })
    return row
  })
  if (row.deploymentId === found.deployment.id) return toFunction(row, found.deployment)
  return toFunction(row, (await findFunction(ctx, ref, slug)).deployment)
}

function read(body: Body): { text?: string | undefined; fields: Write } {
  if (!(body instanceof Uint8Array)) return { text: body.body, fields: body }
  return { text: sourceText(body), fields: {} }
}

/** What the bundler of the other runtime writes, packed or not. */
const MAGICS = ['ESZIP', 'EZBR']

function sourceText(bytes: Uint8Array<ArrayBuffer>): string {
  const head = new TextDecoder('latin1').decode(bytes.subarray(0, 5))
  if (MAGICS.some((magic) => head.startsWith(magic))) throw new ApiError('bad_request.eszip')
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
    if (text !== '' && !text.includes('\0')) return text
  } catch {}
  throw refused({ field: 'body', code: 'invalid', message: 'must be the text of a TypeScript or JavaScript module' })
}

const oneFile = (slug: string, entrypoint: string, text: string) => {
  const bytes = new Uint8Array(new TextEncoder().encode(text).buffer as ArrayBuffer)
  return { slug, entrypoint, files: [{ path: entrypoint, bytes }] }
}

const settingsOf = (fields: Write, query: WriteOptions): Settings => ({
  name: fields.name ?? query.name,
  verifyJwt: fields.verify_jwt ?? query.verify_jwt,
})

const DEPLOY = 'is for a function of several files: use /functions/deploy'

function refuseImportMap({ import_map: flag, import_map_path: path }: WriteOptions): void {
  if (flag) throw refused({ field: 'query.import_map', code: 'invalid', message: DEPLOY })
  if (path !== undefined) throw refused({ field: 'query.import_map_path', code: 'invalid', message: DEPLOY })
}

const KEPT = 'cannot change without a body'

function refuseOtherFiles({ deployment }: Deployed, query: WriteOptions): void {
  const { import_map: flag, import_map_path: importMap, entrypoint_path: entrypoint } = query
  const issues = [
    { field: 'query.import_map', differs: flag !== undefined && flag !== (deployment.importMap !== null) },
    { field: 'query.import_map_path', differs: importMap !== undefined && importMap !== deployment.importMap },
    { field: 'query.entrypoint_path', differs: entrypoint !== undefined && entrypoint !== deployment.entrypoint },
  ]
  for (const { field, differs } of issues) if (differs) throw refused({ field, code: 'invalid', message: KEPT })
}
