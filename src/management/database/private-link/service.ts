import { and, asc, eq, ne, type SQL } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { ConnectedProject } from '../../../engine/engine.ts'
import { privateLinkAssociations, projects } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireLockedPlan } from '../../account/organizations/plan-features.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { configurationOf, hasPrivateLink, partsOf } from './configurations.ts'
import { endAssociations } from './end-associations.ts'
import type { AssociationList, AssociationReply, CreateAssociation } from './schema.ts'

/** The maximum number of associations per project, including those being deleted. */
const ASSOCIATIONS_MAX = 100

type Row = typeof privateLinkAssociations.$inferSelect
type Input = z.output<typeof CreateAssociation>['data']['attributes']
type Association = z.input<typeof AssociationReply>['data']

export async function listAssociations(
  { db, engine }: Ctx,
  project: ProjectAccess,
): Promise<z.input<typeof AssociationList>> {
  const rows = await db
    .select()
    .from(privateLinkAssociations)
    .where(eq(privateLinkAssociations.projectRef, project.ref))
    .orderBy(asc(privateLinkAssociations.createdAt), asc(privateLinkAssociations.id))
  // The row has the host at the creation of the association: the project may have moved, and a replica may be gone.
  return {
    data: rows.map((row) =>
      toAssociation({ ...row, dnsName: databaseOf(engine, project, row.databaseIdentifier)?.host || row.dnsName }),
    ),
  }
}

/** Creates an association. It replaces a failed or expired one; any other existing one is a conflict. */
export async function createAssociation(
  ctx: Ctx,
  project: ProjectAccess,
  input: Input,
): Promise<z.input<typeof AssociationReply>> {
  const { ref, organizationId } = project
  const row = await mutate(ctx, async (mutation) => {
    const { tx, trace, enqueue } = mutation
    await requireLockedPlan(tx, organizationId, 'private_link')
    if (!hasPrivateLink(ctx.config)) throw unavailable('private link is not configured on this installation')
    await lockProject(mutation, ref)
    const database = await findDatabase(ctx, tx, ref, input.database_identifier ?? ref)
    const account = { awsAccountId: input.aws_account_id, databaseIdentifier: database.identifier }
    await removeEnded(ctx, mutation, isAssociation(ref, account))
    await requireAssociationQuota(tx, ref)
    const at = ctx.now()
    const inserted = requireRow(
      await tx
        .insert(privateLinkAssociations)
        .values({
          projectRef: ref,
          ...account,
          accountName: input.account_name ?? null,
          databaseType: database.type,
          dnsName: database.dnsName,
          resourceConfigurationArn: database.configurationArn,
          status: 'CREATING',
          dueAt: at,
          createdAt: at,
        })
        .returning(),
    )
    const { id, awsAccountId, databaseIdentifier } = inserted
    enqueue({ type: 'private-link', id })
    const detail = { association: id, aws_account_id: awsAccountId, database: databaseIdentifier }
    await trace({ project, action: 'private_link.create', detail })
    return inserted
  })
  return { data: toAssociation(row) }
}

export async function deleteAssociation(ctx: Ctx, project: ProjectAccess, account: Account): Promise<void> {
  await mutate(ctx, async (mutation) => {
    if ((await endAssociations(mutation, isAssociation(project.ref, account), ctx.now())) === 0) return
    const detail = { aws_account_id: account.awsAccountId, database: account.databaseIdentifier }
    await mutation.trace({ project, action: 'private_link.delete', detail })
  })
}

type Account = Pick<Row, 'awsAccountId' | 'databaseIdentifier'>

const isAssociation = (projectRef: string, { awsAccountId, databaseIdentifier }: Account) =>
  and(
    eq(privateLinkAssociations.projectRef, projectRef),
    eq(privateLinkAssociations.databaseIdentifier, databaseIdentifier),
    eq(privateLinkAssociations.awsAccountId, awsAccountId),
  )

/** Requires the project lock: a read replica may be in removal. */
async function findDatabase({ engine, config }: Ctx, tx: Writer, ref: string, identifier: string) {
  const [project] = await tx
    .select({ ref: projects.ref, engineState: projects.engineState })
    .from(projects)
    .where(eq(projects.ref, ref))
  if (!project) throw new ApiError('not_found.project')
  const database = databaseOf(engine, project, identifier)
  if (!database) {
    const message = `must be ${ref}, the primary database, or the identifier of a read replica`
    throw invalidField('body.data.attributes.database_identifier', message, 'unknown')
  }
  const isPrimary = identifier === ref
  const configurationArn = configurationOf(config, identifier, isPrimary && engine.connection(project).isOnLocalHost)
  if (!configurationArn) throw unavailable(`the database ${identifier} has no resource configuration`)
  const type = isPrimary ? ('PRIMARY' as const) : ('READ_REPLICA' as const)
  return { identifier, type, dnsName: database.host, configurationArn }
}

const databaseOf = (engine: Ctx['engine'], project: ConnectedProject, identifier: string) =>
  identifier === project.ref
    ? engine.connection(project)
    : engine.replicas?.list(project).find((replica) => replica.identifier === identifier)

const ENDED_STATUSES: readonly Row['status'][] = ['CREATION_FAILED', 'ASSOCIATION_REQUEST_EXPIRED']

async function removeEnded(ctx: Ctx, mutation: Mutation, condition: SQL | undefined): Promise<void> {
  const [existing] = await mutation.tx
    .select({ id: privateLinkAssociations.id, status: privateLinkAssociations.status })
    .from(privateLinkAssociations)
    .where(and(condition, ne(privateLinkAssociations.status, 'DELETING')))
    .for('update')
  if (!existing) return
  if (!ENDED_STATUSES.includes(existing.status)) {
    throw new ApiError('conflict.private_link_association', { detail: `its status is ${existing.status}` })
  }
  await endAssociations(mutation, eq(privateLinkAssociations.id, existing.id), ctx.now())
}

/** Requires the project lock, so that concurrent requests cannot exceed the limit. */
async function requireAssociationQuota(tx: Writer, ref: string): Promise<void> {
  const associations = await tx.$count(privateLinkAssociations, eq(privateLinkAssociations.projectRef, ref))
  if (associations < ASSOCIATIONS_MAX) return
  const detail = `a project can have at most ${ASSOCIATIONS_MAX}, including those being deleted`
  throw new ApiError('unprocessable.too_many_private_links', { detail })
}

const unavailable = (detail: string) => new ApiError('bad_request.private_link', { detail })

function toAssociation(row: Row): Association {
  const { id, accountName, sharedAt, resourceConfigurationArn, shareArn } = row
  return {
    type: 'private_link_association',
    id,
    attributes: {
      aws_account_id: row.awsAccountId,
      ...(accountName !== null && { account_name: accountName }),
      status: row.status,
      shared_at: sharedAt?.toISOString() ?? null,
      database_type: row.databaseType,
      database_identifier: row.databaseIdentifier,
      custom_dns_name: row.dnsName,
      resource_access_manager_resource_config_id: partsOf(resourceConfigurationArn).id,
      resource_access_manager_resource_config_arn: resourceConfigurationArn,
      ...(shareArn !== null && { resource_access_manager_share_arn: shareArn }),
    },
  }
}
