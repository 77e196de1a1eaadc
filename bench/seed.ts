import { sql } from 'drizzle-orm'
import { type ControlDb, upsertUser } from '../dev/seed.ts'
import { hashToken, newAccessToken } from '../src/access/token.ts'
import { memberRoles, organizations } from '../src/model/tables/index.ts'

export interface SeededOrganization {
  id: string
  slug: string
}

/** Inserts an organization and its projects as rows only: the measured endpoints do not use the projects' databases. */
export async function seedOrganization(control: ControlDb, slug: string, projectCount: number) {
  const [organization] = await control
    .insert(organizations)
    .values({ slug, name: slug, plan: 'enterprise' })
    .returning()
  if (!organization) throw new Error(`the organization ${slug} was not seeded`)
  await control.execute(sql`
    insert into projects (ref, organization_id, name, region, instance_size, status, postgres_version,
      sealed_password, sealed_runner_password, created_at)
    select translate(substr(md5(${slug} || n), 1, 14) || lpad(n::text, 6, '0'), '0123456789', 'ghijklmnop'),
      ${organization.id}, 'Project ' || lpad(n::text, 6, '0'), 'us-east-1', 'nano', 'ACTIVE_HEALTHY', '18.4',
      repeat('x', 88), repeat('x', 120), timestamptz '2026-01-01' + n * interval '1 minute'
    from generate_series(1, ${projectCount}::int) n`)
  return { id: organization.id, slug }
}

/** Creates users who own all of the organizations. */
export async function seedOwners(control: ControlDb, owned: readonly SeededOrganization[], count: number) {
  const userIds: string[] = []
  for (let n = 0; n < count; n++) {
    const { id } = await upsertUser(control, `bench-${n}`, `bench-${n}@example.com`)
    userIds.push(id)
  }
  const roles = userIds.flatMap((userId) =>
    owned.map(({ id }) => ({ organizationId: id, userId, role: 'owner' as const })),
  )
  await control.insert(memberRoles).values(roles)
  return userIds
}

/** Creates tokens, for each user in turn. */
export async function seedTokens(control: ControlDb, userIds: readonly string[], count: number): Promise<string[]> {
  const tokens = Array.from({ length: count }, () => newAccessToken())
  const hashes = await Promise.all(tokens.map(hashToken))
  await control.execute(sql`
    insert into access_tokens (hash, name, user_id)
    select hash, 'bench', (${sql.param(userIds)}::uuid[])[1 + (n - 1) % ${userIds.length}::int]
    from unnest(${sql.param(hashes)}::text[]) with ordinality as given (hash, n)`)
  return tokens
}

/** Vacuums and analyzes the tables, as autovacuum does in operation. */
export async function settleTables(control: ControlDb): Promise<void> {
  await control.execute(sql`vacuum analyze projects, organizations, member_roles, users, access_tokens`)
}

/** Returns a function that returns the items one by one, again and again. */
export function inTurn<T>(items: readonly T[]): () => T {
  let n = 0
  return () => {
    const item = items[n++ % items.length]
    if (item === undefined) throw new Error('nothing to take in turn')
    return item
  }
}
