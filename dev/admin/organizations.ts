import { and, eq, inArray, isNull } from 'drizzle-orm'
import { PLANS, type Plan } from '../../src/config.ts'
import { planIncludes } from '../../src/management/account/organizations/plan-features.ts'
import { markForDeletion } from '../../src/management/database/private-link/end-associations.ts'
import { unpreparedColumns } from '../../src/management/projects/projects/prepare-databases.ts'
import { openJwtSecret } from '../../src/model/secrets/project.ts'
import { memberRoles, organizations, privateLinkAssociations, projects } from '../../src/model/tables/index.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { refuseEncryptionKey, targetEncryptionKey } from '../target.ts'
import { change, type Transaction } from './change.ts'
import type { Command } from './command.ts'
import { findOrganization, findUser, lockOrganization, unknownProject } from './find.ts'

export const organizationCommands: Record<string, Command> = {
  'organization create': {
    summary: 'Create an organization.',
    args: ['name'],
    options: `--owner username [--plan ${PLANS.join('|')}]`,
    run: (db, [name = ''], { owner, plan }) => {
      if (owner === undefined) throw new StartError('--owner is missing: the user who will own the organization')
      return createOrganization(db, { name, owner, plan: plan === undefined ? defaultPlan() : readPlan(plan) })
    },
  },
  'organization list': {
    summary: 'List all organizations.',
    args: [],
    run: (db) => listOrganizations(db),
  },
  'organization plan': {
    summary: 'Change the plan of an organization.',
    args: ['slug', PLANS.join('|')],
    run: (db, [slug = '', plan = '']) => setPlan(db, slug, readPlan(plan)),
  },
  'project list': {
    summary: 'List the projects of an organization.',
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
  'project jwt-secret': {
    summary: 'Print the JWT secret of a project.',
    args: ['ref'],
    run: (db, [ref = '']) => showJwtSecret(db, ref),
  },
}

async function listOrganizations(db: ControlDb): Promise<string> {
  const rows = await db.select().from(organizations).where(isNull(organizations.removedAt)).orderBy(organizations.slug)
  const lines = rows.map(
    ({ slug, plan, projectCount, name, disabledAt }) =>
      `${slug}  ${plan}  ${projectCount} projects  ${name}${disabledAt ? '  disabled' : ''}`,
  )
  return lines.join('\n') || 'no organizations'
}

function readPlan(name: string, setting = ''): Plan {
  const plan = PLANS.find((known) => known === name)
  if (!plan) throw new StartError(`${setting}${name} is not a plan: must be one of ${PLANS.join(', ')}`)
  return plan
}

const defaultPlan = () => readPlan(process.env.DEFAULT_PLAN || 'enterprise', 'DEFAULT_PLAN=')

interface NewOrganization {
  name: string
  owner: string
  plan: Plan
}

function createOrganization(db: ControlDb, { name, owner, plan }: NewOrganization): Promise<string> {
  return change(db, async ({ tx, trace }) => {
    const { id: userId } = await findUser(tx, owner)
    const slug = randomLetters()
    const [row] = await tx.insert(organizations).values({ slug, name, plan }).returning()
    if (!row) throw new Error('the organization was not inserted')
    await tx.insert(memberRoles).values({ organizationId: row.id, userId, role: 'owner' })
    await trace({ action: 'organization.create', organizationId: row.id, detail: { owner: userId, plan } })
    return `organization ${slug}`
  })
}

/** Prints the JWT secret, for a backend that signs tokens. With it one can act as any user of the project, so this is audited. */
async function showJwtSecret(db: ControlDb, ref: string): Promise<string> {
  const encryptionKey = await targetEncryptionKey(process.env)
  return change(db, async ({ tx, trace }) => {
    const where = and(eq(projects.ref, ref), isNull(projects.removedAt))
    const [project] = await tx.select().from(projects).where(where)
    if (!project) return unknownProject(ref)
    const { organizationId, sealedJwtSecret } = project
    if (!sealedJwtSecret) throw new StartError(`${ref} gets its secret when its API keys are read for the first time`)
    const secret = await openJwtSecret(encryptionKey, ref, sealedJwtSecret).catch(refuseEncryptionKey)
    await trace({ action: 'project.jwt_secret.show', organizationId, projectRef: ref })
    return secret
  })
}

function setPlan(db: ControlDb, slug: string, plan: Plan): Promise<string> {
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const { id, plan: before } = organization
    if (plan === before) return `${slug} is on the plan ${plan} already`
    await tx.update(organizations).set({ plan }).where(eq(organizations.id, id))
    // The plan decides when the databases sleep, so their settings must be prepared again.
    const ofOrganization = and(eq(projects.organizationId, id), isNull(projects.removedAt))
    await tx
      .update(projects)
      .set(unpreparedColumns({ now: () => new Date() }))
      .where(ofOrganization)
    if (!planIncludes(plan, 'private_link')) await endPrivateLinks(tx, id)
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

/** Marks the organization's private links for deletion; the Worker's sweeper ends their shares at AWS. */
async function endPrivateLinks(tx: Transaction, organizationId: string): Promise<void> {
  const ofOrganization = tx
    .select({ ref: projects.ref })
    .from(projects)
    .where(eq(projects.organizationId, organizationId))
  await markForDeletion(tx, inArray(privateLinkAssociations.projectRef, ofOrganization), new Date())
}
