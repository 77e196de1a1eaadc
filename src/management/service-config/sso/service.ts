import { and, eq, notInArray, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ssoDomains, ssoProviders } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { attributeToField, UnusableValue } from '../../../platform/http/unusable-value.ts'
import { fetchText } from '../../../platform/net/fetch-text.ts'
import { mutate } from '../../kernel/mutate.ts'
import { lockProject } from '../../projects/projects/lock-project.ts'
import { METADATA_BYTES_MAX, readMetadata } from './metadata.ts'
import { type DomainRow, findProvider, IN_ORDER, type ProviderRow, requireSaml, toProvider } from './read.ts'
import type { CreateProvider, UpdateProvider } from './schema.ts'

const PROVIDERS_MAX = 100
/** Of all providers of a project together. */
const METADATA_MIB_MAX = 16
const DOMAINS_MAX = 1_000

type Update = z.output<typeof UpdateProvider>
type Source = Pick<ProviderRow, 'entityId' | 'metadataUrl' | 'metadataXml'>

const subject = ({ organizationId, ref }: ProjectAccess) => ({ organizationId, projectRef: ref })

export async function createProvider(ctx: Ctx, project: ProjectAccess, input: z.output<typeof CreateProvider>) {
  await requireSaml(ctx, project)
  const source = await readSource(ctx, input)
  if (!source) throw new Error('a provider without metadata')
  return mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    await lockProject(mutation, project.ref)
    const now = ctx.now()
    const [row] = await tx
      .insert(ssoProviders)
      .values({ projectRef: project.ref, ...source, ...optionsIn(input), createdAt: now, updatedAt: now })
      .onConflictDoNothing()
      .returning()
    if (!row) throw new ApiError('unprocessable.sso_entity', { detail: source.entityId })
    const domains = await setDomains(tx, row, input.domains ?? [], now)
    await requireRoom(tx, project.ref, input)
    const { id: provider, entityId: entity } = row
    const detail = { provider, entity, domains: domains.map(({ domain }) => domain) }
    await trace({ ...subject(project), action: 'sso_provider.create', detail })
    return toProvider(row, domains)
  })
}

export async function updateProvider(ctx: Ctx, project: ProjectAccess, id: string, input: Update) {
  const before = await findProvider(ctx, project, id)
  const fields = Object.keys(input)
  if (fields.length === 0) return toProvider(before.row, before.domains)
  const source = await readSource(ctx, input, before.row.entityId)
  return mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    await lockProject(mutation, project.ref)
    const now = ctx.now()
    const [row] = await tx
      .update(ssoProviders)
      .set({ ...source, ...optionsIn(input), updatedAt: now })
      .where(and(eq(ssoProviders.projectRef, project.ref), eq(ssoProviders.id, id)))
      .returning()
    if (!row) throw new ApiError('not_found.sso_provider')
    const domains = input.domains ? await setDomains(tx, row, input.domains, now) : await domainsOf(tx, id)
    await requireRoom(tx, project.ref, input)
    await trace({ ...subject(project), action: 'sso_provider.update', detail: { provider: id, fields } })
    return toProvider(row, domains)
  })
}

export async function deleteProvider(ctx: Ctx, project: ProjectAccess, id: string) {
  await findProvider(ctx, project, id)
  return mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    await lockProject(mutation, project.ref)
    const domains = await domainsOf(tx, id)
    const [row] = await tx
      .delete(ssoProviders)
      .where(and(eq(ssoProviders.projectRef, project.ref), eq(ssoProviders.id, id)))
      .returning()
    if (!row) throw new ApiError('not_found.sso_provider')
    const detail = { provider: id, entity: row.entityId }
    await trace({ ...subject(project), action: 'sso_provider.delete', detail })
    return toProvider(row, domains)
  })
}

/** Undefined where none is given. Users are known by the entity that vouched for them, so that a provider keeps its own. */
async function readSource(ctx: Ctx, input: Update, expected?: string): Promise<Source | undefined> {
  const { metadata_url: url, metadata_xml: xml } = input
  if (url === undefined && xml === undefined) return undefined
  return attributeToField(url === undefined ? 'metadata_xml' : 'metadata_url', async () => {
    const metadataXml = url === undefined ? (xml ?? '') : await fetchMetadata(ctx, url)
    const entityId = readMetadata(metadataXml)
    if (expected !== undefined && entityId !== expected) {
      throw new UnusableValue(`is of the entity ${entityId}, and the provider of ${expected}`)
    }
    return { entityId, metadataUrl: url ?? null, metadataXml }
  })
}

const fetchMetadata = (ctx: Ctx, url: string): Promise<string> =>
  fetchText(ctx, url, { accept: 'application/samlmetadata+xml, application/xml', sizeBytesMax: METADATA_BYTES_MAX })

const optionsIn = ({ attribute_mapping, name_id_format }: Update) => ({
  ...(attribute_mapping && { attributeMapping: attribute_mapping }),
  ...(name_id_format && { nameIdFormat: name_id_format }),
})

/** Counted while the project is locked, with what has just been written: two requests cannot take the last place. */
async function requireRoom(
  tx: Writer,
  ref: string,
  { metadata_xml: xml, metadata_url: url, ...input }: Update,
): Promise<void> {
  const [held] = await tx
    .select({
      providers: sql<number>`count(*)::int`,
      metadataBytes: sql<number>`coalesce(sum(octet_length(${ssoProviders.metadataXml})), 0)::int`,
      domains: sql<number>`(select count(*)::int from ${ssoDomains} where ${eq(ssoDomains.projectRef, ref)})`,
    })
    .from(ssoProviders)
    .where(eq(ssoProviders.projectRef, ref))
  const { providers, metadataBytes, domains } = held ?? { providers: 0, metadataBytes: 0, domains: 0 }
  if (providers > PROVIDERS_MAX) {
    throw new ApiError('bad_request.sso_providers', { detail: `a project has at most ${PROVIDERS_MAX}` })
  }
  const field = url === undefined ? 'metadata_xml' : 'metadata_url'
  if ((xml ?? url) !== undefined && metadataBytes > METADATA_MIB_MAX * 1024 ** 2) {
    throw tooMuch(
      field,
      `the metadata of all providers has ${metadataBytes} bytes, and may have ${METADATA_MIB_MAX} MiB`,
    )
  }
  if (input.domains && domains > DOMAINS_MAX)
    throw tooMuch('domains', `a project has at most ${DOMAINS_MAX}, and would have ${domains}`)
}

const tooMuch = (field: string, message: string) =>
  new ApiError('bad_request.validation_failed', { issues: [{ field: `body.${field}`, code: 'too_much', message }] })

const domainsOf = (tx: Writer, id: string): Promise<DomainRow[]> =>
  tx
    .select()
    .from(ssoDomains)
    .where(eq(ssoDomains.providerId, id))
    .orderBy(...IN_ORDER)

/** Those that stay keep their rows. */
async function setDomains(tx: Writer, { id: providerId, projectRef }: ProviderRow, given: string[], now: Date) {
  const wanted = Array.from(new Set(given)).sort()
  await tx.delete(ssoDomains).where(and(eq(ssoDomains.providerId, providerId), notInArray(ssoDomains.domain, wanted)))
  if (wanted.length === 0) return []
  await tx
    .insert(ssoDomains)
    .values(wanted.map((domain) => ({ providerId, projectRef, domain, createdAt: now, updatedAt: now })))
    .onConflictDoNothing()
  const domains = await domainsOf(tx, providerId)
  const taken = wanted.filter((domain) => !domains.some((row) => row.domain === domain))
  if (taken.length > 0) throw new ApiError('bad_request.sso_domain', { detail: taken.join(', ') })
  return domains
}
