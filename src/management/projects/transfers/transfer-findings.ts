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
  webhookEndpoints,
  workers,
  workerTasks,
} from '../../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../../platform/db/client.ts'
import { planIncludes } from '../../account/organizations/plan-features.ts'
import { FUNCTIONS_MAX } from '../../programs/functions/function-rows.ts'
import { TRANSITIONS } from '../projects/region-values.ts'

type Organization = Pick<typeof organizations.$inferSelect, 'id' | 'slug' | 'plan'>

export interface Move {
  project: Pick<ProjectAccess, 'ref' | 'parentRef'>
  source: Organization
  target: Organization
  /** The users who give it away and take it in, */
  giverId: string
  takerId: string
  /** and the roles of which each needs one in the whole organization that he does it for. */
  roles: readonly Role[]
}

/** The project and its branches, which go with it. */
const moved = ({ project: { ref } }: Move): SQL =>
  sql`(select ref from ${projects} where ref = ${ref}
    union all select ref from ${projects} where parent_ref = ${ref} and removed_at is null)`

interface Facts {
  mayGive: boolean
  mayTake: boolean
  nameTaken: boolean
  busy: boolean
  /** The repository that it follows. */
  repository: string | null
  branches: number
  /** Of the one that has most. */
  functions: number
  endpoints: number
  drains: number
  snippets: number
  notebooks: number
  privateLinks: number
  losing: number
  gaining: number
}

/** Where nothing is on its way to another status. */
const STEADY = TRANSITIONS.delete.from

/** Counted in one statement, and in the transfer's own transaction once more, where it decides. */
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
    sql`with moved as ${moved(move)}
      select ${may(giverId, source)} as "mayGive", ${may(takerId, target)} as "mayTake",
        exists (select from ${projects} p, ${projects} other
          where p.ref = ${ref} and other.organization_id = ${target.id} and other.name = p.name and other.ref <> p.ref
          and other.removed_at is null and other.status <> 'GOING_DOWN' and other.parent_ref is null) as "nameTaken",
        exists (select from ${projectTasks} where project_ref in (select ref from moved) and state in ('pending', 'running'))
          or exists (select from ${projects} where ref in (select ref from moved)
            and status <> all(${sql.param([...STEADY])}::text[]))
          or exists (select from ${workers} w join ${workerTasks} t on t.worker_id = w.id
            where w.project_ref in (select ref from moved) and t.state in ('pending', 'running')) as busy,
        (select repository_name from ${gitConnections} where project_ref = ${ref}) as repository,
        (select count(*)::int - 1 from moved) as branches,
        (select coalesce(max(n), 0)::int from (select count(*) as n from ${functions}
          where project_ref in (select ref from moved) group by project_ref) counted) as functions,
        (select count(*)::int from ${webhookEndpoints}
          where project_ref in (select ref from moved) and branch_id is null) as endpoints,
        (select count(*)::int from ${logDrains}
          where project_ref in (select ref from moved) and deleted_at is null) as drains,
        (select count(*)::int from ${privateLinkAssociations}
          where project_ref in (select ref from moved) and status <> 'DELETING') as "privateLinks",
        (select count(*)::int from ${snippets} where project_ref in (select ref from moved)) as snippets,
        (select count(*)::int from ${notebooks} where project_ref in (select ref from moved)) as notebooks,
        ${inBoth(source, target, sql`(m.project_ref is null or m.project_ref in (select ref from moved))`)} as losing,
        ${inBoth(target, source, sql`m.project_ref is null`)} as gaining`,
  )
  if (!facts) throw new Error(`nothing is known of ${ref}`)
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

/** What stands in the way, what somebody may not like, and what else changes. */
export async function findIn(reader: Pick<Writer, 'execute'>, move: Move): Promise<Findings> {
  const facts = await readFacts(reader, move)
  return { errors: errors(move, facts), warnings: warnings(move, facts), info: info(move, facts) }
}

const listed = (findings: readonly (readonly [boolean, string, string])[]): Finding[] =>
  findings.flatMap(([holds, key, message]) => (holds ? [{ key, message }] : []))

const of = (count: number, one: string, many = `${one}s`) => `${count} ${count === 1 ? one : many}`

export const NOT_ALLOWED = ['source_owner_required', 'target_owner_required']

function errors({ project, source, target, roles }: Move, facts: Facts): Finding[] {
  const max = FUNCTIONS_MAX[target.plan]
  const { parentRef } = project
  const who = roles.join(' or ')
  const onPlan = `the plan ${target.plan} of ${target.slug}`
  return listed([
    [!facts.mayGive, 'source_owner_required', `Only an ${who} of ${source.slug} can give the project away`],
    [!facts.mayTake, 'target_owner_required', `Only an ${who} of ${target.slug} can take the project in`],
    [source.id === target.id, 'same_organization', `The project belongs to ${target.slug} already`],
    [parentRef !== null, 'project_is_branch', `A branch goes with its project: transfer ${parentRef}`],
    [source.id !== target.id && facts.nameTaken, 'project_name_taken', `${target.slug} has a project of this name`],
    [facts.busy, 'project_busy', 'Work on the project or one of its branches is under way: wait until it has ended'],
    [
      facts.repository !== null,
      'github_connection_active',
      `It follows ${facts.repository} at GitHub, whose owners would go on changing it: have the connection removed first`,
    ],
    [
      target.plan === 'free' && facts.branches > 0,
      'branches_not_covered',
      `It has ${of(facts.branches, 'branch', 'branches')}, and ${onPlan} does not cover any`,
    ],
    [
      !planIncludes(target.plan, 'log_drains') && facts.drains > 0,
      'log_drains_not_covered',
      `It has ${of(facts.drains, 'log drain')}, and ${onPlan} does not cover any`,
    ],
    [
      max !== undefined && facts.functions > max,
      'functions_not_covered',
      `It has ${of(facts.functions, 'function')}, and ${onPlan} has room for ${max}`,
    ],
  ])
}

const warnings = ({ source, target }: Move, facts: Facts): Finding[] =>
  listed([
    [
      facts.losing > 0,
      'members_lose_access',
      `${of(facts.losing, 'member')} of ${source.slug} will not reach it any more; their temporary logins to its databases end`,
    ],
    [
      facts.privateLinks > 0,
      'private_links_end',
      `It will be shared with ${of(facts.privateLinks, 'AWS account')} no more`,
    ],
    [
      source.plan !== target.plan,
      'plan_changes',
      `The plan ${target.plan} will hold for it, and no more the plan ${source.plan}`,
    ],
    [
      true,
      'credentials_stay',
      'API keys, signing keys, passwords of databases and secrets stay as they are: who knows them goes on using them until they are changed',
    ],
  ])

const info = ({ source, target }: Move, facts: Facts): Finding[] =>
  listed([
    [facts.gaining > 0, 'members_gain_access', `${of(facts.gaining, 'member')} of ${target.slug} will reach it`],
    [facts.branches > 0, 'branches_move', `${of(facts.branches, 'branch', 'branches')} will go with it`],
    [facts.snippets > 0, 'snippets_move', `${of(facts.snippets, 'SQL snippet')} will go with it`],
    [facts.notebooks > 0, 'notebooks_move', `${of(facts.notebooks, 'notebook')} will go with it`],
    [facts.endpoints > 0, 'webhook_endpoints_move', `${of(facts.endpoints, 'webhook endpoint')} will go with it`],
    [facts.drains > 0, 'log_drains_move', `${of(facts.drains, 'log drain')} will go with it`],
    [
      true,
      'organization_webhooks_change',
      `Webhook endpoints of ${target.slug} will hear of it, and those of ${source.slug} no more`,
    ],
  ])
