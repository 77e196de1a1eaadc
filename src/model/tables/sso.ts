import { index, jsonb, pgTable, text, uniqueIndex, uuid } from 'drizzle-orm/pg-core'
import { instant } from './identity.ts'
import { ofProject } from './projects.ts'

export const NAME_ID_FORMATS = [
  'urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified',
  'urn:oasis:names:tc:SAML:2.0:nameid-format:transient',
  'urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress',
  'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent',
] as const

export interface AttributeMapping {
  keys: Record<
    string,
    {
      name?: string | undefined
      names?: string[] | undefined
      array?: boolean | undefined
      default?: string | number | boolean | Record<string, unknown> | undefined
    }
  >
}

/** SAML identity providers of a project. */
export const ssoProviders = pgTable(
  'sso_providers',
  {
    id: uuid().primaryKey().defaultRandom(),
    projectRef: ofProject(),
    entityId: text('entity_id').notNull(),
    metadataUrl: text('metadata_url'),
    metadataXml: text('metadata_xml').notNull(),
    attributeMapping: jsonb('attribute_mapping').$type<AttributeMapping>(),
    nameIdFormat: text('name_id_format', { enum: NAME_ID_FORMATS }),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    index('sso_providers_project').on(t.projectRef, t.createdAt),
    uniqueIndex('sso_providers_entity_once').on(t.projectRef, t.entityId),
  ],
)

export const ssoDomains = pgTable(
  'sso_domains',
  {
    id: uuid().primaryKey().defaultRandom(),
    providerId: uuid('provider_id')
      .notNull()
      .references(() => ssoProviders.id, { onDelete: 'cascade' }),
    projectRef: ofProject(),
    /** Domain in lower case. */
    domain: text().notNull(),
    createdAt: instant('created_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
  },
  (t) => [
    uniqueIndex('sso_domains_once').on(t.projectRef, t.domain),
    index('sso_domains_provider').on(t.providerId, t.createdAt),
  ],
)
