import { and, asc, eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { thirdPartyAuths } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { isDepthAtMost, isStorable } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { attributeToField } from '../../../platform/http/unusable-value.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { KEY_SET_CHARACTERS_MAX, readJwks } from './jwks.ts'
import { nextRefresh } from './refresh-schedule.ts'
import { resolveKeys } from './resolve-keys.ts'
import type { CreateIntegration, Integration } from './schema.ts'

/** The maximum number of integrations per project: a token without a known `kid` is verified with the keys of each. */
export const INTEGRATIONS_MAX = 10

type Row = typeof thirdPartyAuths.$inferSelect
type ResolvedRow = Pick<Row, 'type' | 'issuer' | 'resolvedJwks' | 'refreshAt'> &
  Partial<Pick<Row, 'oidcIssuerUrl' | 'jwksUrl' | 'customJwks'>>

export async function listIntegrations({ db }: Ctx, { ref }: ProjectAccess) {
  const rows = await db
    .select()
    .from(thirdPartyAuths)
    .where(eq(thirdPartyAuths.projectRef, ref))
    .orderBy(asc(thirdPartyAuths.insertedAt), asc(thirdPartyAuths.id))
  return rows.map(toIntegration)
}

export async function getIntegration({ db }: Ctx, { ref }: ProjectAccess, id: string) {
  const [row] = await db.select().from(thirdPartyAuths).where(isIntegration(ref, id))
  if (!row) throw new ApiError('not_found.third_party_auth')
  return toIntegration(row)
}

export async function createIntegration(ctx: Ctx, project: ProjectAccess, input: z.output<typeof CreateIntegration>) {
  const { ref } = project
  const found = await findKeys(ctx, input)
  const row = await changeProject(ctx, project, async ({ tx, record }) => {
    await requireIntegrationQuota(tx, ref)
    const now = ctx.now()
    const inserted = requireRow(
      await tx
        .insert(thirdPartyAuths)
        .values({ projectRef: ref, ...found, insertedAt: now, updatedAt: now, resolvedAt: now })
        .returning(),
    )
    const { id, type, issuer, jwksUrl } = inserted
    const detail = { integration: id, type, issuer, jwks_url: jwksUrl && withoutQuery(jwksUrl) }
    await record('third_party_auth.create', detail)
    return inserted
  })
  return toIntegration(row)
}

export async function deleteIntegration(ctx: Ctx, project: ProjectAccess, id: string) {
  const row = await changeProject(ctx, project, async ({ tx, record }) => {
    const [deleted] = await tx.delete(thirdPartyAuths).where(isIntegration(project.ref, id)).returning()
    if (!deleted) throw new ApiError('not_found.third_party_auth')
    await record('third_party_auth.delete', { integration: id })
    return deleted
  })
  return toIntegration(row)
}

/** Removes the query, which may contain a credential. */
function withoutQuery(url: string): string {
  const { origin, pathname } = new URL(url)
  return origin + pathname
}

const isIntegration = (ref: string, id: string) => and(eq(thirdPartyAuths.projectRef, ref), eq(thirdPartyAuths.id, id))

async function findKeys(ctx: Ctx, input: z.output<typeof CreateIntegration>): Promise<ResolvedRow> {
  const { oidc_issuer_url: oidcIssuerUrl = null, jwks_url: jwksUrl = null, custom_jwks: customJwks } = input
  if (oidcIssuerUrl === null && jwksUrl === null) {
    const resolvedJwks = await attributeToField('custom_jwks', () => readJwks(customJwks, { ignoresOtherKeys: false }))
    return {
      type: 'custom_jwks',
      customJwks: storableOriginal(customJwks) ?? resolvedJwks,
      resolvedJwks,
      issuer: null,
      refreshAt: null,
    }
  }
  const field = oidcIssuerUrl === null ? 'jwks_url' : 'oidc_issuer_url'
  const { issuer, jwks } = await attributeToField(field, () => resolveKeys(ctx, { oidcIssuerUrl, jwksUrl }))
  const type = oidcIssuerUrl === null ? 'jwks' : 'oidc'
  return { type, oidcIssuerUrl, jwksUrl, issuer, resolvedJwks: jwks, refreshAt: nextRefresh(ctx.now()) }
}

/** A key set with certificates has four levels. The checks of deeper values are recursive and could exhaust the stack. */
const KEY_SET_DEPTH_MAX = 10

/** Returns the original set, with which clients compare their own, or undefined if it cannot be stored. */
const storableOriginal = (value: unknown) =>
  isDepthAtMost(value, KEY_SET_DEPTH_MAX) && isStorable(value) && JSON.stringify(value).length <= KEY_SET_CHARACTERS_MAX
    ? value
    : undefined

/** Requires the project lock, so that concurrent requests cannot exceed the limit. */
async function requireIntegrationQuota(tx: Writer, ref: string): Promise<void> {
  if ((await tx.$count(thirdPartyAuths, eq(thirdPartyAuths.projectRef, ref))) < INTEGRATIONS_MAX) return
  throw new ApiError('bad_request.third_party_auths', { detail: `a project can have at most ${INTEGRATIONS_MAX}` })
}

function toIntegration(row: Row): z.input<typeof Integration> {
  const { id, type, oidcIssuerUrl, jwksUrl, customJwks, resolvedJwks, insertedAt, updatedAt, resolvedAt } = row
  return {
    id,
    type,
    ...(oidcIssuerUrl !== null && { oidc_issuer_url: oidcIssuerUrl }),
    ...(jwksUrl !== null && { jwks_url: jwksUrl }),
    ...(customJwks !== null && { custom_jwks: customJwks }),
    ...(resolvedJwks !== null && { resolved_jwks: resolvedJwks }),
    inserted_at: insertedAt.toISOString(),
    updated_at: updatedAt.toISOString(),
    ...(resolvedAt && { resolved_at: resolvedAt.toISOString() }),
  }
}
