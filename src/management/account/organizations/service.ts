import { eq } from 'drizzle-orm'
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
  const rows = await db
    .select({ user: users, role: memberRoles.role, projectRef: memberRoles.projectRef })
    .from(memberRoles)
    .innerJoin(users, eq(users.id, memberRoles.userId))
    .where(eq(memberRoles.organizationId, id))
    .orderBy(users.username, users.id)
  const byUser = Map.groupBy(rows, ({ user }) => user.id)
  const isVisible = ({ projectRef }: Membership) =>
    !onlyProjects || projectRef === null || onlyProjects.includes(projectRef)
  return Array.from(byUser.values(), (roles) => toMember(roles, isVisible))
}

interface Membership {
  user: typeof users.$inferSelect
  role: Role
  projectRef: string | null
}

function toMember(roles: Membership[], isVisible: (membership: Membership) => boolean) {
  const [{ user }] = roles as [Membership]
  const role = strongestRole(roles.filter(isVisible).map(({ role }) => role))
  return {
    user_id: user.id,
    user_name: user.username,
    email: user.primaryEmail,
    ...(role && { role_name: ROLE_NAMES[role] }),
    mfa_enabled: user.mfaEnabled,
    avatar_url: user.avatarUrl,
  }
}

const toHandle = ({ slug, name }: { slug: string; name: string }) => ({ id: slug, slug, name })
