import { and, eq, isNull } from 'drizzle-orm'
import { PLANS } from '../../src/auth/roles.ts'
import { memberRoles, organizations, projects } from '../../src/db/schema/index.ts'
import { randomLetters } from '../../src/http/values.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { findOrganization, findUser, lockOrganization } from './find.ts'

export const organizationCommands: Record<string, Command> = {
  'organization create': {
    args: ['name'],
    options: '--owner username',
    run: async (db, [name = ''], { owner = '' }) => {
      const { id: userId } = await findUser(db, owner)
      const slug = randomLetters()
      const plan = PLANS.find((known) => known === process.env.DEFAULT_PLAN) ?? 'enterprise'
      await db.transaction(async (tx) => {
        const [row] = await tx.insert(organizations).values({ slug, name, plan }).returning()
        if (row) await tx.insert(memberRoles).values({ organizationId: row.id, userId, role: 'owner' })
      })
      return `organization ${slug}`
    },
  },
  'organization plan': {
    args: ['slug', PLANS.join('|')],
    run: (db, [slug = '', plan = '']) => setPlan(db, slug, plan),
  },
  'project list': {
    args: ['slug'],
    run: async (db, [slug = '']) => {
      const { id } = await findOrganization(db, slug)
      const rows = await db
        .select()
        .from(projects)
        .where(and(eq(projects.organizationId, id), isNull(projects.removedAt)))
        .orderBy(projects.name)
      return (
        rows
          .map(({ ref, status, name, statusReason }) => `${ref}  ${status}  ${name}  ${statusReason ?? ''}`)
          .join('\n') || 'no projects'
      )
    },
  },
}

async function setPlan(db: ControlDb, slug: string, name: string): Promise<string> {
  const plan = PLANS.find((known) => known === name)
  if (!plan) throw new StartError(`${name} is no plan: ${PLANS.join(', ')}`)
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const { id, plan: before } = organization
    if (plan === before) return `${slug} is on the plan ${plan} already`
    await tx.update(organizations).set({ plan }).where(eq(organizations.id, id))
    const up = PLANS.indexOf(plan) > PLANS.indexOf(before)
    await publish({
      type: up ? 'v1.organization.billing.plan.upgraded' : 'v1.organization.billing.plan.downgraded',
      organization,
      projectRef: null,
      fields: { billing: { plan } },
    })
    await trace({ action: 'organization.plan', organizationId: id, detail: { from: before, to: plan } })
    return `${slug} is on the plan ${plan}`
  })
}
