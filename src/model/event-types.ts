import type { BranchStatus } from './tables/branches.ts'
import type { ProjectStatus } from './tables/values.ts'

interface Branch {
  branch: { ref: string; name: string; git_branch: string | null; is_default: boolean; status: BranchStatus }
}
interface Role {
  name: string
  /** Projects that the role is limited to; null for the whole organization. */
  projects: { ref: string }[] | null
}
interface Member {
  member: { user_id: string; primary_email: string; role: Role }
}
interface Invitation {
  member: { invitation: { email: string; role: Role } }
}
interface Leak {
  secrets: { name: string; url: string | null }[]
}

const branch: Branch = {
  branch: {
    ref: 'abcdefghijklmnopqrst',
    name: 'test',
    git_branch: null,
    is_default: false,
    status: 'FUNCTIONS_DEPLOYED',
  },
}
const role: Role = { name: 'Developer', projects: null }
const member: Member = {
  member: { user_id: '00000000-0000-7000-8000-000000000000', primary_email: 'test@example.com', role },
}
const invitation: Invitation = { member: { invitation: { email: 'test@example.com', role } } }
const leak: Leak = { secrets: [{ name: 'test', url: null }] }
const empty: Record<never, never> = {}

const sample = <Payload>(payload: Payload): Payload => payload

/**
 * Every event type with the payload of its test event, in the order of the specification. Payloads are without organization_slug,
 * project_ref and actor. docs/webhooks.md lists what publishes each type.
 */
export const SAMPLES = {
  'v1.project.paused': sample<{ reason: 'api_request' | 'inactivity' | 'other' }>({ reason: 'other' }),
  'v1.project.created': sample<{ source: { type: 'clone'; project_ref: string } | null }>({ source: null }),
  'v1.project.restored': empty,
  'v1.project.transferred': { source: { organization_slug: 'test' }, target: { organization_slug: 'test' } },
  'v1.project.removed': empty,
  'v1.project.restarted': empty,
  'v1.project.status.changed': sample<{ previous_status: ProjectStatus; current_status: ProjectStatus }>({
    previous_status: 'UNKNOWN',
    current_status: 'UNKNOWN',
  }),
  'v1.project.backup.started': empty,
  'v1.project.branch.created': branch,
  'v1.project.branch.updated': branch,
  'v1.project.branch.removed': branch,
  'v1.project.secrets.leaked': leak,
  'v1.organization.member.invitation.created': invitation,
  'v1.organization.member.invitation.canceled': invitation,
  'v1.organization.member.added': member,
  'v1.organization.member.removed': member,
  'v1.organization.member.role.assigned': member,
  'v1.organization.member.role.removed': member,
  'v1.organization.member.role.updated': member,
  'v1.organization.billing.plan.upgraded': { billing: { plan: 'pro' } },
  'v1.organization.billing.plan.downgraded': { billing: { plan: 'free' } },
  'v1.organization.secrets.leaked': leak,
}
export type Payloads = typeof SAMPLES
export type EventType = keyof Payloads

export const EVENT_TYPES = Object.keys(SAMPLES) as [EventType, ...EventType[]]

/** `v1.project.paused` is also known as `project.v1.paused`. */
const aliasOf = (type: EventType) => type.replace(/^v1\.(\w+)\./, '$1.v1.')

const ALIASES = new Map<string, EventType>([
  ...EVENT_TYPES.map((type): [string, EventType] => [aliasOf(type), type]),
  ['project.v1.branch.deleted', 'v1.project.branch.removed'],
])

/** Every spelling of an event type that requests may use. */
export const EVENT_TYPE_SPELLINGS = [...EVENT_TYPES, ...ALIASES.keys()] as [string, ...string[]]

export const canonicalType = (spelling: string): EventType | undefined =>
  EVENT_TYPES.find((type) => type === spelling) ?? ALIASES.get(spelling)
