import { type SQL, sql } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Role } from '../../../model/roles.ts'
import {
  functions,
  gitConnections,
  logDrains,
  memberRoles,
  notebooks,
  type organizations,
  privateLinkAssociations,
  projects,
  projectTasks,
  snippets,
  thirdPartyAuths,
  webhookEndpoints,
  workers,
  workerTasks,
} from '../../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../../platform/db/client.ts'
import { planIncludes } from '../../account/organizations/plan-features.ts'
import { FUNCTIONS_MAX } from '../../programs/functions/function-rows.ts'
import { TRANSITIONS } from '../projects/project-states.ts'

type Organization = Pick<typeof organizations.$inferSelect, 'id' | 'slug' | 'plan'>

export interface Move {
  project: Pick<ProjectAccess, 'ref' | 'parentRef'>
  source: Organization
  target: Organization
  /** User who gives the project away. */
  giverId: string
  /** User who takes the project over. */
  takerId: string
  /** Each of the two needs one of these roles in their organization as a whole. */
  roles: readonly Role[]
}

/** Selects the refs of the project and its branches, which move with it. */
const movedRefs = (ref: string): SQL =>
  sql`(select ref from ${projects} where ref = ${ref}
    union all select ref from ${projects} where parent_ref = ${ref} and removed_at is null)`

/** Third-party issuers, webhook endpoints and log drains that a project and its branches keep after a move. */
interface Reach {
  /** Third-party issuers: the URL of their discovery document or key set, or words for a key set that was given. */
  issuers: string[]
  endpoints: number
  drains: number
}

interface Facts extends Reach {
  mayGive: boolean
  mayTake: boolean
  isNameTaken: boolean
  isBusy: boolean
  /** The GitHub repository connected to the project. */
  repository: string | null
  branches: number
  /** Highest number of functions of the project or of one of its branches. */
  functions: number
  snippets: number
  notebooks: number
  privateLinks: number
  /** Members who would lose or gain access. */
  losing: number
  gaining: number
}

/** Columns of `Reach`, for the projects of `moved`. */
const reachColumns = sql`
  array(select distinct coalesce(oidc_issuer_url, jwks_url, 'a key set (custom_jwks)') from ${thirdPartyAuths}
    where project_ref in (select ref from moved) order by 1) as issuers,
  (select count(*)::int from ${webhookEndpoints}
    where project_ref in (select ref from moved) and (branch_id is null or enabled)) as endpoints,
  (select count(*)::int from ${logDrains}
    where project_ref in (select ref from moved) and deleted_at is null) as drains`

/** Statuses without a running transition. */
const STEADY = TRANSITIONS.delete.from

/** Reads the facts in one statement: for the preview, and again in the transaction of the transfer, where they decide. */
async function readFacts(reader: Pick<Writer, 'execute'>, move: Move): Promise<Facts> {
  const { project, source, target, giverId, takerId, roles } = move
  const { ref } = project
  const may = (userId: string, { id }: Organization) => sql`exists (select from ${memberRoles}
    where organization_id = ${id} and user_id = ${userId} and project_ref is null
    and role = any(${sql.param([...roles])}::text[]))`
  const inBoth = (one: Organization, other: Organization, where: SQL) => sql`(
    select count(distinct m.user_id)::int from ${memberRoles} m
    where m.organization_id = ${one.id} and ${where} and not exists (select from ${memberRoles} o
      where o.organization_id = ${other.id} and o.user_id = m.user_id and o.project_ref is null))`
  const [facts] = await rowsOf<Facts>(
    reader,
    sql`with moved as ${movedRefs(ref)}
      select ${may(giverId, source)} as "mayGive", ${may(takerId, target)} as "mayTake",
        exists (select from ${projects} p, ${projects} other
          where p.ref = ${ref} and other.organization_id = ${target.id} and other.name = p.name and other.ref <> p.ref
          and other.removed_at is null and other.status <> 'GOING_DOWN' and other.parent_ref is null) as "isNameTaken",
        exists (select from ${projectTasks} where project_ref in (select ref from moved) and state in ('pending', 'running'))
          or exists (select from ${projects} where ref in (select ref from moved)
            and status <> all(${sql.param([...STEADY])}::text[]))
          or exists (select from ${workers} w join ${workerTasks} t on t.worker_id = w.id
            where w.project_ref in (select ref from moved) and t.state in ('pending', 'running')) as "isBusy",
        (select repository_name from ${gitConnections} where project_ref = ${ref}) as repository,
        (select count(*)::int - 1 from moved) as branches,
        (select coalesce(max(n), 0)::int from (select count(*) as n from ${functions}
          where project_ref in (select ref from moved) group by project_ref) counted) as functions,
        ${reachColumns},
        (select count(*)::int from ${privateLinkAssociations}
          where project_ref in (select ref from moved) and status <> 'DELETING') as "privateLinks",
        (select count(*)::int from ${snippets} where project_ref in (select ref from moved)) as snippets,
        (select count(*)::int from ${notebooks} where project_ref in (select ref from moved)) as notebooks,
        ${inBoth(source, target, sql`(m.project_ref is null or m.project_ref in (select ref from moved))`)} as losing,
        ${inBoth(target, source, sql`m.project_ref is null`)} as gaining`,
  )
  if (!facts) throw new Error(`the facts of ${ref} cannot be read`)
  return facts
}

interface Finding {
  key: string
  message: string
}

export interface Findings {
  errors: Finding[]
  warnings: Finding[]
  info: Finding[]
}

/** Lists the obstacles of a transfer, its unwanted consequences and its other changes. */
export async function findTransferFindings(reader: Pick<Writer, 'execute'>, move: Move): Promise<Findings> {
  const facts = await readFacts(reader, move)
  return { errors: errors(move, facts), warnings: warnings(move, facts), info: info(move, facts) }
}

/** Describes what continues to reach the project, whoever takes it over. */
export async function findReach(reader: Pick<Writer, 'execute'>, ref: string): Promise<string[]> {
  const [reach] = await rowsOf<Reach>(reader, sql`with moved as ${movedRefs(ref)} select ${reachColumns}`)
  if (!reach) throw new Error(`the facts of ${ref} cannot be read`)
  return applicable([issuersStay(reach), endpointsMove(reach), drainsMove(reach)]).map(({ message }) => message)
}

/** Whether the finding applies, its key and its message. */
type Check = readonly [boolean, string, string]

const applicable = (findings: readonly Check[]): Finding[] =>
  findings.flatMap(([holds, key, message]) => (holds ? [{ key, message }] : []))

const countOf = (count: number, one: string, many = `${one}s`) => `${count} ${count === 1 ? one : many}`

const issuersStay = ({ issuers }: Reach): Check => [
  issuers.length > 0,
  'third_party_issuers_stay',
  `Tokens of third-party issuers remain valid, with any role that they contain: ${issuers.join(', ')}`,
]

const endpointsMove = ({ endpoints }: Reach): Check => [
  endpoints > 0,
  'webhook_endpoints_move',
  `${countOf(endpoints, 'webhook endpoint')} will move with the project, and continue to receive its events`,
]

const drainsMove = ({ drains }: Reach): Check => [
  drains > 0,
  'log_drains_move',
  `${countOf(drains, 'log drain')} will move with the project, and continue to receive its logs`,
]

export const OWNER_ERRORS = ['source_owner_required', 'target_owner_required']

function errors({ project, source, target, roles }: Move, facts: Facts): Finding[] {
  const max = FUNCTIONS_MAX[target.plan]
  const { parentRef } = project
  const roleNames = roles.join(' or ')
  const onPlan = `the plan ${target.plan} of ${target.slug}`
  return applicable([
    [!facts.mayGive, 'source_owner_required', `Only an ${roleNames} of ${source.slug} can give the project away`],
    [!facts.mayTake, 'target_owner_required', `Only an ${roleNames} of ${target.slug} can take the project over`],
    [source.id === target.id, 'same_organization', `The project already belongs to ${target.slug}`],
    [parentRef !== null, 'project_is_branch', `A branch moves with its project: transfer ${parentRef}`],
    [source.id !== target.id && facts.isNameTaken, 'project_name_taken', `${target.slug} has a project of this name`],
    [
      facts.isBusy,
      'project_busy',
      'An operation on the project or one of its branches is running: wait until it has ended',
    ],
    [
      facts.repository !== null,
      'github_connection_active',
      `The project is connected to the GitHub repository ${facts.repository}, whose owners could still change it: remove the connection first`,
    ],
    [
      target.plan === 'free' && facts.branches > 0,
      'branches_not_covered',
      `The project has ${countOf(facts.branches, 'branch', 'branches')}, and ${onPlan} does not include branching`,
    ],
    [
      !planIncludes(target.plan, 'log_drains') && facts.drains > 0,
      'log_drains_not_covered',
      `The project has ${countOf(facts.drains, 'log drain')}, and ${onPlan} does not include log drains`,
    ],
    [
      max !== undefined && facts.functions > max,
      'functions_not_covered',
      `The project has ${countOf(facts.functions, 'function')}, and ${onPlan} allows at most ${max}`,
    ],
  ])
}

const warnings = ({ source, target }: Move, facts: Facts): Finding[] =>
  applicable([
    [
      facts.losing > 0,
      'members_lose_access',
      `${countOf(facts.losing, 'member')} of ${source.slug} will lose access to the project; their temporary logins to its databases end`,
    ],
    [
      facts.privateLinks > 0,
      'private_links_end',
      `The project will no longer be shared with ${countOf(facts.privateLinks, 'AWS account')}`,
    ],
    [
      source.plan !== target.plan,
      'plan_changes',
      `The plan of the project will change from ${source.plan} to ${target.plan}`,
    ],
    [
      true,
      'credentials_stay',
      'API keys, signing keys, database passwords and secrets do not change: anyone who knows them can use them until they are changed',
    ],
    issuersStay(facts),
  ])

const info = ({ source, target }: Move, facts: Facts): Finding[] =>
  applicable([
    [
      facts.gaining > 0,
      'members_gain_access',
      `${countOf(facts.gaining, 'member')} of ${target.slug} will gain access to the project`,
    ],
    [
      facts.branches > 0,
      'branches_move',
      `${countOf(facts.branches, 'branch', 'branches')} will move with the project`,
    ],
    [facts.snippets > 0, 'snippets_move', `${countOf(facts.snippets, 'SQL snippet')} will move with the project`],
    [facts.notebooks > 0, 'notebooks_move', `${countOf(facts.notebooks, 'notebook')} will move with the project`],
    endpointsMove(facts),
    drainsMove(facts),
    [
      true,
      'organization_webhooks_change',
      `Webhook endpoints of ${target.slug} will receive the events of the project instead of those of ${source.slug}`,
    ],
  ])
