import { and, asc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import {
  findOrganization,
  type OrganizationAccess,
  organizationsAllowing,
  requirePermission,
} from '../../../access/access.ts'
import { hashToken, randomHex } from '../../../access/token.ts'
import type { Ctx } from '../../../ctx.ts'
import { SCOPES, type Scope } from '../../../model/scopes.ts'
import { GRANT_TYPES, type GrantType, JWT_BEARER, oauthApps, organizations } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { lockOrganization } from '../../kernel/lock-organization.ts'
import { mutate } from '../../kernel/mutate.ts'
import {
  BASIC_GRANT_TYPES,
  type CreateApp,
  type OAuthApp,
  RESPONSE_TYPES,
  type RegisterApp,
  type UpdateApp,
} from './schema.ts'

type Organization = Pick<OrganizationAccess, 'id'>
type Row = typeof oauthApps.$inferSelect

const APPS_MAX = 100

const toApp = (row: Row): z.input<typeof OAuthApp> => ({
  client_id: row.id,
  client_id_issued_at: Math.floor(row.createdAt.getTime() / 1000),
  client_name: row.name,
  redirect_uris: row.redirectUris,
  scope: row.scopes.join(' '),
  token_endpoint_auth_method: row.secretHash === null ? 'none' : 'client_secret_basic',
  grant_types: row.grantTypes,
  response_types: row.grantTypes.includes('implicit') ? [...RESPONSE_TYPES] : ['code'],
})

/** Adds the client secret, which never expires but can be rotated. */
const withSecret = (row: Row, secret: string | undefined) => ({
  ...toApp(row),
  ...(secret !== undefined && { client_secret: secret, client_secret_expires_at: 0 }),
})

export const newClientSecret = () => `sba_${randomHex()}`

export async function listApps({ db }: Ctx, { id }: Organization) {
  const where = eq(oauthApps.organizationId, id)
  const rows = await db.select().from(oauthApps).where(where).orderBy(asc(oauthApps.createdAt), asc(oauthApps.id))
  return rows.map(toApp)
}

export async function getApp({ db }: Ctx, { id: organizationId }: Organization, id: string) {
  const [row] = await db.select().from(oauthApps).where(isApp(organizationId, id))
  if (!row) throw new ApiError('not_found.oauth_app')
  return toApp(row)
}

const isApp = (organizationId: string, id: string) =>
  and(eq(oauthApps.id, id), eq(oauthApps.organizationId, organizationId))

export async function createApp(ctx: Ctx, { id: organizationId }: Organization, input: z.output<typeof CreateApp>) {
  const { client_name: name, redirect_uris: redirectUris, scope, token_endpoint_auth_method: method } = input
  const scopes = readScopes(scope)
  const grantTypes = readGrantTypes(input)
  if (method === 'none') refuseAssertions(grantTypes)
  const secret = method === 'none' ? undefined : newClientSecret()
  const secretHash = secret === undefined ? null : await hashToken(secret)
  const row = await mutate(ctx, async ({ tx, trace }) => {
    // The lock prevents concurrent requests from exceeding the limit.
    await lockOrganization({ tx }, organizationId)
    const known = await tx.$count(oauthApps, eq(oauthApps.organizationId, organizationId))
    if (known >= APPS_MAX) throw new ApiError('unprocessable.too_many_oauth_apps', { detail: `at most ${APPS_MAX}` })
    const values = { organizationId, name, redirectUris, scopes, grantTypes, secretHash, createdAt: ctx.now() }
    const app = requireRow(await tx.insert(oauthApps).values(values).returning())
    await trace({
      action: 'oauth_app.create',
      organizationId,
      detail: { app: app.id, name, redirectUris, scopes, grantTypes },
    })
    return app
  })
  return withSecret(row, secret)
}

/** Registers an application (RFC 7591). The access token is the initial access token, and its user must administer the publisher. */
export async function registerApp(ctx: Ctx, { organization_slug: slug, ...input }: z.output<typeof RegisterApp>) {
  if (slug === undefined) return createApp(ctx, await onlyOrganization(ctx), input)
  const organization = await findOrganization(ctx, slug)
  requirePermission(organization.role, 'organizations:write')
  return createApp(ctx, organization, input)
}

async function onlyOrganization({ db, actor }: Ctx): Promise<Organization> {
  const [only, second] = await db
    .select({ id: organizations.id })
    .from(organizations)
    .where(organizationsAllowing(actor, 'organizations:write'))
    .orderBy(asc(organizations.slug))
    .limit(2)
  if (!only || second)
    throw invalidField('body.organization_slug', 'is missing: must be the organization that publishes the application')
  return only
}

/** Updates the given fields. Existing tokens keep the approved scopes. */
export async function updateApp(
  ctx: Ctx,
  { id: organizationId }: Organization,
  id: string,
  { client_name: name, redirect_uris: redirectUris, scope, grant_types }: z.output<typeof UpdateApp>,
) {
  const fields = {
    ...(name !== undefined && { name }),
    ...(redirectUris !== undefined && { redirectUris }),
    ...(scope !== undefined && { scopes: readScopes(scope) }),
    ...(grant_types !== undefined && { grantTypes: readGrantTypes({ grant_types }) }),
  }
  if (Object.keys(fields).length === 0) return getApp(ctx, { id: organizationId }, id)
  const row = await mutate(ctx, async ({ tx, trace }) => {
    const [app] = await tx.update(oauthApps).set(fields).where(isApp(organizationId, id)).returning()
    if (!app) throw new ApiError('not_found.oauth_app')
    if (app.secretHash === null) refuseAssertions(app.grantTypes)
    await trace({ action: 'oauth_app.update', organizationId, detail: { app: id, ...fields } })
    return app
  })
  return toApp(row)
}

/** Replaces the client secret. The old one ends at once; existing tokens stay valid. */
export async function rotateAppSecret(ctx: Ctx, { id: organizationId }: Organization, id: string) {
  const secret = newClientSecret()
  const secretHash = await hashToken(secret)
  const row = await mutate(ctx, async ({ tx, trace }) => {
    const [app] = await tx.select().from(oauthApps).where(isApp(organizationId, id)).for('update')
    if (!app) throw new ApiError('not_found.oauth_app')
    if (app.secretHash === null) throw new ApiError('conflict.public_oauth_app')
    await tx.update(oauthApps).set({ secretHash }).where(eq(oauthApps.id, id))
    await trace({ action: 'oauth_app.rotate', organizationId, detail: { app: id } })
    return app
  })
  return withSecret(row, secret)
}

/** Deletes an application with its approvals and tokens. */
export async function deleteApp(ctx: Ctx, { id: organizationId }: Organization, id: string): Promise<void> {
  await mutate(ctx, async ({ tx, trace }) => {
    const [app] = await tx.delete(oauthApps).where(isApp(organizationId, id)).returning()
    if (!app) throw new ApiError('not_found.oauth_app')
    await trace({ action: 'oauth_app.delete', organizationId, detail: { app: id, name: app.name } })
  })
}

function readScopes(text: string): Scope[] {
  const names = new Set(text.split(' ').filter(Boolean))
  const scopes = SCOPES.filter((scope) => names.has(scope))
  if (scopes.length === 0 || scopes.length < names.size) {
    throw invalidField('body.scope', `must be a space-separated list of ${SCOPES.join(', ')}`)
  }
  return scopes
}

/** Reads the grant types, which `response_types` imply too (RFC 7591, 2.1). */
function readGrantTypes({ grant_types = [], response_types = [] }: Partial<z.output<typeof CreateApp>>): GrantType[] {
  const requested = new Set<GrantType>([...BASIC_GRANT_TYPES, ...grant_types])
  if (response_types.some((type) => type !== 'code')) requested.add('implicit')
  return GRANT_TYPES.filter((type) => requested.has(type))
}

/** Refuses assertions for public applications: without a secret, anyone who obtains an assertion could use it. */
function refuseAssertions(grantTypes: readonly GrantType[]): void {
  if (grantTypes.includes(JWT_BEARER))
    throw invalidField('body.grant_types', `must not contain ${JWT_BEARER}: a public application has no secret`)
}
