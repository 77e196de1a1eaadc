import { and, eq, notInArray, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ssoDomains, ssoProviders } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { attributeToField, UnusableValue } from '../../../platform/http/unusable-value.ts'
import { fetchText } from '../../../platform/net/fetch-text.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { METADATA_BYTES_MAX, readMetadata } from './metadata.ts'
import {
  DOMAIN_ORDER,
  type DomainRow,
  findProvider,
  type ProviderRow,
  requireSaml,
  toProvider,
} from './read-providers.ts'
import type { CreateProvider, UpdateProvider } from './schema.ts'

const PROVIDERS_MAX = 100
/** The maximum total size of the metadata of all providers of a project. */
const METADATA_MIB_MAX = 16
const DOMAINS_MAX = 1_000

type Update = z.output<typeof UpdateProvider>
type Source = Pick<ProviderRow, 'entityId' | 'metadataUrl' | 'metadataXml'>

export async function createProvider(ctx: Ctx, project: ProjectAccess, input: z.output<typeof CreateProvider>) {
  await requireSaml(ctx, project)
  const source = await readSource(ctx, input)
  if (!source) throw new Error('the provider has no metadata')
  return changeProject(ctx, project, async ({ tx, record }) => {
    const now = ctx.now()
    const [row] = await tx
      .insert(ssoProviders)
      .values({ projectRef: project.ref, ...source, ...optionColumns(input), createdAt: now, updatedAt: now })
      .onConflictDoNothing()
      .returning()
    if (!row) throw new ApiError('unprocessable.sso_entity', { detail: source.entityId })
    const domains = await setDomains(tx, row, input.domains ?? [], now)
    await requireProviderQuota(tx, project.ref, input)
    const { id: provider, entityId: entity } = row
    await record('sso_provider.create', { provider, entity, domains: domains.map(({ domain }) => domain) })
    return toProvider(row, domains)
  })
}

export async function updateProvider(ctx: Ctx, project: ProjectAccess, id: string, input: Update) {
  const before = await findProvider(ctx, project, id)
  const fields = Object.keys(input)
  if (fields.length === 0) return toProvider(before.row, before.domains)
  const source = await readSource(ctx, input, before.row.entityId)
  return changeProject(ctx, project, async ({ tx, record }) => {
    const now = ctx.now()
    const [row] = await tx
      .update(ssoProviders)
      .set({ ...source, ...optionColumns(input), updatedAt: now })
      .where(and(eq(ssoProviders.projectRef, project.ref), eq(ssoProviders.id, id)))
      .returning()
    if (!row) throw new ApiError('not_found.sso_provider')
    const domains = input.domains ? await setDomains(tx, row, input.domains, now) : await domainsOf(tx, id)
    await requireProviderQuota(tx, project.ref, input)
    await record('sso_provider.update', { provider: id, fields })
    return toProvider(row, domains)
  })
}

export async function deleteProvider(ctx: Ctx, project: ProjectAccess, id: string) {
  await findProvider(ctx, project, id)
  return changeProject(ctx, project, async ({ tx, record }) => {
    const domains = await domainsOf(tx, id)
    const [row] = await tx
      .delete(ssoProviders)
      .where(and(eq(ssoProviders.projectRef, project.ref), eq(ssoProviders.id, id)))
      .returning()
    if (!row) throw new ApiError('not_found.sso_provider')
    await record('sso_provider.delete', { provider: id, entity: row.entityId })
    return toProvider(row, domains)
  })
}

/** Reads the given metadata, if any. The provider's entity identifies its users, so it must not change. */
async function readSource(ctx: Ctx, input: Update, expected?: string): Promise<Source | undefined> {
  const { metadata_url: url, metadata_xml: xml } = input
  if (url === undefined && xml === undefined) return undefined
  return attributeToField(url === undefined ? 'metadata_xml' : 'metadata_url', async () => {
    const metadataXml = url === undefined ? (xml ?? '') : await fetchMetadata(ctx, url)
    const entityId = readMetadata(metadataXml)
    if (expected !== undefined && entityId !== expected) {
      throw new UnusableValue(`must be of the provider's entity ${expected}, not ${entityId}`)
    }
    return { entityId, metadataUrl: url ?? null, metadataXml }
  })
}

const fetchMetadata = (ctx: Ctx, url: string): Promise<string> =>
  fetchText(ctx, url, { accept: 'application/samlmetadata+xml, application/xml', sizeBytesMax: METADATA_BYTES_MAX })

const optionColumns = ({ attribute_mapping, name_id_format }: Update) => ({
  ...(attribute_mapping && { attributeMapping: attribute_mapping }),
  ...(name_id_format && { nameIdFormat: name_id_format }),
})

/** Checks the limits after the write. Requires the project lock, so that concurrent requests cannot exceed the limits. */
async function requireProviderQuota(
  tx: Writer,
  ref: string,
  { metadata_xml: xml, metadata_url: url, ...input }: Update,
): Promise<void> {
  const [totals] = await tx
    .select({
      providers: sql<number>`count(*)::int`,
      metadataBytes: sql<number>`coalesce(sum(octet_length(${ssoProviders.metadataXml})), 0)::int`,
      domains: sql<number>`(select count(*)::int from ${ssoDomains} where ${eq(ssoDomains.projectRef, ref)})`,
    })
    .from(ssoProviders)
    .where(eq(ssoProviders.projectRef, ref))
  const { providers, metadataBytes, domains } = totals ?? { providers: 0, metadataBytes: 0, domains: 0 }
  if (providers > PROVIDERS_MAX) {
    throw new ApiError('bad_request.sso_providers', { detail: `a project can have at most ${PROVIDERS_MAX}` })
  }
  const field = url === undefined ? 'metadata_xml' : 'metadata_url'
  if ((xml ?? url) !== undefined && metadataBytes > METADATA_MIB_MAX * 1024 ** 2) {
    throw limitExceeded(
      field,
      `the metadata of all providers together has ${metadataBytes} bytes, at most ${METADATA_MIB_MAX} MiB are allowed`,
    )
  }
  if (input.domains && domains > DOMAINS_MAX)
    throw limitExceeded('domains', `a project can have at most ${DOMAINS_MAX} domains, not ${domains}`)
}

const limitExceeded = (field: string, message: string) => invalidField(`body.${field}`, message, 'too_much')

const domainsOf = (tx: Writer, id: string): Promise<DomainRow[]> =>
  tx
    .select()
    .from(ssoDomains)
    .where(eq(ssoDomains.providerId, id))
    .orderBy(...DOMAIN_ORDER)

/** Replaces the domains; unchanged ones keep their rows. */
async function setDomains(tx: Writer, { id: providerId, projectRef }: ProviderRow, requested: string[], now: Date) {
  const names = Array.from(new Set(requested)).sort()
  await tx.delete(ssoDomains).where(and(eq(ssoDomains.providerId, providerId), notInArray(ssoDomains.domain, names)))
  if (names.length === 0) return []
  await tx
    .insert(ssoDomains)
    .values(names.map((domain) => ({ providerId, projectRef, domain, createdAt: now, updatedAt: now })))
    .onConflictDoNothing()
  const domains = await domainsOf(tx, providerId)
  const taken = names.filter((domain) => !domains.some((row) => row.domain === domain))
  if (taken.length > 0) throw new ApiError('bad_request.sso_domain', { detail: taken.join(', ') })
  return domains
}
