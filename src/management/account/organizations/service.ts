import { eq, sql } from 'drizzle-orm'
import type * as z from 'zod'
import { type OrganizationAccess, visibleOrganizations } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ROLE_NAMES, type Role, strongestRole } from '../../../model/roles.ts'
import { memberRoles, organizations, users } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { randomLetters } from '../../../platform/http/common-values.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import type { CreateOrganization, Organization } from './schema.ts'

export async function listOrganizations({ db, actor }: Ctx) {
  const rows = await db
    .select({ slug: organizations.slug, name: organizations.name })
    .from(organizations)
    .where(visibleOrganizations(actor))
    .orderBy(organizations.createdAt, organizations.slug)
  return rows.map(toHandle)
}

/** Creates an organization, with the caller as its owner. */
export async function createOrganization(ctx: Ctx, { name }: z.output<typeof CreateOrganization>) {
  const { config, actor, now } = ctx
  if (actor.organizationId) {
    throw new ApiError('forbidden.permission_denied', { detail: 'the access token is limited to one organization' })
  }
  const slug = randomLetters()
  await mutate(ctx, async ({ tx, trace }) => {
    const row = requireRow(
      await tx
        .insert(organizations)
        .values({ slug, name, plan: config.DEFAULT_PLAN, createdAt: now() })
        .returning({ id: organizations.id }),
    )
    await tx.insert(memberRoles).values({ organizationId: row.id, userId: actor.userId, role: 'owner' })
    await trace({ action: 'organization.create', organizationId: row.id })
  })
  return toHandle({ slug, name })
}

export const toOrganization = (row: OrganizationAccess): z.input<typeof Organization> => ({
  id: row.slug,
  name: row.name,
  plan: row.plan,
  opt_in_tags: row.optInTags,
  allowed_release_channels: row.allowedReleaseChannels,
})

/** Lists every member once, with the strongest role that the caller may see. */
export async function listMembers({ db }: Ctx, { id, onlyProjects }: OrganizationAccess) {
  const { projectRef } = memberRoles
  const isVisible = onlyProjects
    ? sql`${projectRef} is null or ${projectRef} = any(${sql.param(onlyProjects)}::text[])`
    : sql`true`
  const rows = await db
    .select({
      user_id: users.id,
      user_name: users.username,
      email: users.primaryEmail,
      mfa_enabled: users.mfaEnabled,
      avatar_url: users.avatarUrl,
      roles: sql<Role[] | null>`json_agg(distinct ${memberRoles.role}) filter (where ${isVisible})`,
    })
    .from(memberRoles)
    .innerJoin(users, eq(users.id, memberRoles.userId))
    .where(eq(memberRoles.organizationId, id))
    .groupBy(users.id)
    .orderBy(users.username, users.id)
  return rows.map(({ roles, ...member }) => {
    const role = strongestRole(roles ?? [])
    return { ...member, ...(role && { role_name: ROLE_NAMES[role] }) }
  })
}

const toHandle = ({ slug, name }: { slug: string; name: string }) => ({ id: slug, slug, name })
