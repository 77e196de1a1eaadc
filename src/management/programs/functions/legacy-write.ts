import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functions } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { decodeUtf8 } from '../../kernel/body.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { toFunction } from './convert.ts'
import { deploy, type Settings, toDeployed } from './deploy-function.ts'
import { makeDeployment, utf8 } from './deployment.ts'
import { bySlug, type Deployed, findFunctionOrQuota } from './function-rows.ts'
import { Slug, type Write, type WriteOptions } from './schema.ts'
import { findFunction } from './service.ts'

const DEFAULT_ENTRYPOINT = 'index.ts'

type Body = Write | Uint8Array<ArrayBuffer>

/** Deprecated: creates a function that consists of a single file. */
export async function createFunction(ctx: Ctx, project: ProjectAccess, query: WriteOptions, body: Body) {
  const { text, fields } = readBody(body)
  const slug = fields.slug ?? requireSlug(query.slug)
  rejectImportMap(query)
  if (await findFunctionOrQuota(ctx, project, slug)) throw new ApiError('conflict.function_slug', { detail: slug })
  const entrypoint = query.entrypoint_path ?? DEFAULT_ENTRYPOINT
  const deployment = await makeDeployment(ctx, project, singleFile(ctx, slug, entrypoint, text ?? ''))
  return toDeployed(await deploy(ctx, project, deployment, settingsOf(fields, query), { exists: false }))
}

function requireSlug(slug: string | undefined): string {
  const { data, error } = Slug.safeParse(slug ?? '')
  if (data !== undefined) return data
  throw invalidField('query.slug', error?.issues[0]?.message ?? '')
}

/** With a body, replaces the source with a single file. Without, only updates the settings. */
export async function updateFunction(
  ctx: Ctx,
  project: ProjectAccess,
  { slug, query, body }: { slug: string; query: WriteOptions; body: Body | undefined },
) {
  if (query.slug !== undefined && query.slug !== slug)
    throw invalidField('query.slug', 'must equal the slug in the path: a slug cannot change', 'immutable')
  const found = await findFunction(ctx, project.ref, slug)
  const { text, fields } = body === undefined ? { fields: {}, text: undefined } : readBody(body)
  const settings = settingsOf(fields, query)
  if (text === undefined) {
    requireUnchangedPaths(found, query)
    const isUnchanged = settings.name === undefined && settings.verifyJwt === undefined
    if (isUnchanged) return toFunction(found.row, found.deployment)
    return configure(ctx, project, found, settings)
  }
  rejectImportMap(query)
  const entrypoint = query.entrypoint_path ?? found.deployment.entrypoint
  const deployment = await makeDeployment(ctx, project, singleFile(ctx, slug, entrypoint, text))
  return toDeployed(await deploy(ctx, project, deployment, settings, { exists: true }))
}

async function configure(ctx: Ctx, project: ProjectAccess, found: Deployed, settings: Settings) {
  const { ref } = project
  const { slug } = found.row
  const { name, verifyJwt } = settings
  const row = await changeProject(ctx, project, async ({ tx, record }) => {
    const [row] = await tx
      .update(functions)
      .set({ ...(name !== undefined && { name }), ...(verifyJwt !== undefined && { verifyJwt }), updatedAt: ctx.now() })
      .where(bySlug(ref, slug))
      .returning()
    if (!row) throw new ApiError('not_found.function')
    const fields = Object.keys(settings).filter((key) => settings[key as keyof Settings] !== undefined)
    await record('function.update', { slug, fields })
    return row
  })
  if (row.deploymentId === found.deployment.id) return toFunction(row, found.deployment)
  return toFunction(row, (await findFunction(ctx, ref, slug)).deployment)
}

function readBody(body: Body): { text?: string | undefined; fields: Write } {
  if (!(body instanceof Uint8Array)) return { text: body.body, fields: body }
  return { text: sourceText(body), fields: {} }
}

/** Signatures of eszip bundles, compressed or not. */
const MAGICS = ['ESZIP', 'EZBR']

function sourceText(bytes: Uint8Array<ArrayBuffer>): string {
  const head = new TextDecoder('latin1').decode(bytes.subarray(0, 5))
  if (MAGICS.some((magic) => head.startsWith(magic))) throw new ApiError('bad_request.eszip')
  try {
    const text = decodeUtf8(bytes)
    if (text !== '' && !text.includes('\0')) return text
  } catch {}
  throw invalidField('body', 'must be the text of a TypeScript or JavaScript module')
}

const singleFile = ({ now }: Ctx, slug: string, entrypoint: string, text: string) => ({
  ...{ slug, entrypoint, files: [{ path: entrypoint, bytes: utf8(text) }] },
  requestedAt: now(),
})

const settingsOf = (fields: Write, query: WriteOptions): Settings => ({
  name: fields.name ?? query.name,
  verifyJwt: fields.verify_jwt ?? query.verify_jwt,
})

const SINGLE_FILE_ONLY = 'must be absent: functions with several files are deployed with /functions/deploy'

function rejectImportMap({ import_map: flag, import_map_path: path }: WriteOptions): void {
  if (flag) throw invalidField('query.import_map', SINGLE_FILE_ONLY)
  if (path !== undefined) throw invalidField('query.import_map_path', SINGLE_FILE_ONLY)
}

function requireUnchangedPaths({ deployment }: Deployed, query: WriteOptions): void {
  const { import_map: flag, import_map_path: importMap, entrypoint_path: entrypoint } = query
  const refuse = (field: string) => {
    throw invalidField(field, 'must be unchanged unless a body is sent')
  }
  if (flag !== undefined && flag !== (deployment.importMap !== null)) refuse('query.import_map')
  if (importMap !== undefined && importMap !== deployment.importMap) refuse('query.import_map_path')
  if (entrypoint !== undefined && entrypoint !== deployment.entrypoint) refuse('query.entrypoint_path')
}
