import { and, asc, eq, getTableColumns } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ssoDomains, ssoProviders } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { parseSettingsRow, selectSettings } from '../../projects/settings/read-settings.ts'
import { toAuthConfig } from '../auth-config/stored-config.ts'
import type { Provider } from './schema.ts'

export type ProviderRow = typeof ssoProviders.$inferSelect
export type DomainRow = typeof ssoDomains.$inferSelect

export async function listProviders(ctx: Ctx, { ref }: ProjectAccess) {
  const { db } = ctx
  // Leaves out the metadata, which may have a megabyte per provider.
  const { metadataXml: _, ...columns } = getTableColumns(ssoProviders)
  const [settings, rows, domains] = await db.batch([
    selectSettings(db, ref, 'auth'),
    db
      .select(columns)
      .from(ssoProviders)
      .where(eq(ssoProviders.projectRef, ref))
      .orderBy(asc(ssoProviders.createdAt), asc(ssoProviders.id)),
    db
      .select()
      .from(ssoDomains)
      .where(eq(ssoDomains.projectRef, ref))
      .orderBy(...DOMAIN_ORDER),
  ])
  if (!isEnabled(settings)) throw new ApiError('not_found.saml')
  const byProvider = Map.groupBy(domains, ({ providerId }) => providerId)
  return { items: rows.map((row) => toProvider(row, byProvider.get(row.id) ?? [])) }
}

export async function readProvider(ctx: Ctx, project: ProjectAccess, id: string) {
  const { row, domains } = await findProvider(ctx, project, id)
  return toProvider(row, domains)
}

export async function findProvider(ctx: Ctx, { ref }: ProjectAccess, id: string) {
  const { db } = ctx
  const [settings, [row], domains] = await db.batch([
    selectSettings(db, ref, 'auth'),
    db
      .select()
      .from(ssoProviders)
      .where(and(eq(ssoProviders.projectRef, ref), eq(ssoProviders.id, id))),
    db
      .select()
      .from(ssoDomains)
      .where(and(eq(ssoDomains.projectRef, ref), eq(ssoDomains.providerId, id)))
      .orderBy(...DOMAIN_ORDER),
  ])
  if (!isEnabled(settings)) throw new ApiError('not_found.saml_or_sso_provider')
  if (!row) throw new ApiError('not_found.sso_provider')
  return { row, domains }
}

export async function requireSaml(ctx: Ctx, { ref }: ProjectAccess): Promise<void> {
  if (!isEnabled(await selectSettings(ctx.db, ref, 'auth'))) throw new ApiError('not_found.saml')
}

export const DOMAIN_ORDER = [asc(ssoDomains.createdAt), asc(ssoDomains.domain)]

const isEnabled = (auth: Awaited<ReturnType<typeof selectSettings>>): boolean =>
  toAuthConfig(parseSettingsRow('auth', auth).value).saml_enabled === true

const times = ({ createdAt, updatedAt }: { createdAt: Date; updatedAt: Date }) => ({
  created_at: createdAt.toISOString(),
  updated_at: updatedAt.toISOString(),
})

/** All providers are SAML providers, so the `saml` object has the id of the provider. */
export function toProvider(
  row: Omit<ProviderRow, 'metadataXml'> & Partial<Pick<ProviderRow, 'metadataXml'>>,
  domains: readonly DomainRow[],
): z.input<typeof Provider> {
  const { id, entityId, metadataUrl, metadataXml, attributeMapping, nameIdFormat } = row
  return {
    id,
    saml: {
      id,
      entity_id: entityId,
      ...(metadataUrl !== null && { metadata_url: metadataUrl }),
      ...(metadataXml !== undefined && { metadata_xml: metadataXml }),
      ...(attributeMapping && { attribute_mapping: attributeMapping }),
      ...(nameIdFormat && { name_id_format: nameIdFormat }),
      ...times(row),
    },
    domains: domains.map((domain) => ({ id: domain.id, domain: domain.domain, ...times(domain) })),
    ...times(row),
  }
}
