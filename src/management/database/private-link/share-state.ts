import type { AssociationStatus } from '../../../model/tables/index.ts'
import type { Associated, AssociationState } from './aws-ram.ts'

/** The state of a share at AWS. */
export interface Observed {
  /** The association of the database; undefined if AWS lists none. */
  resource: Associated | undefined
  /** The association of the account; undefined if AWS lists none. */
  principal: Associated | undefined
  /** True if the share is so new that AWS may not list it yet. */
  isNew: boolean
}

interface ShareStatus {
  status: AssociationStatus
  /** The reason for a failure. */
  reason?: string
}

const ENDED_STATES: readonly (AssociationState | undefined)[] = ['FAILED', 'DISASSOCIATING', 'DISASSOCIATED']

/** Derives the next status from the state at AWS. An inconclusive state, such as of a suspended share, does not change the status. */
export function nextStatus(before: AssociationStatus, { resource, principal, isNew }: Observed): ShareStatus {
  if (ENDED_STATES.includes(resource?.status)) return failed('database', resource)
  if (!resource)
    return isNew ? { status: before } : { status: 'CREATION_FAILED', reason: 'the share does not exist at AWS' }
  if (principal?.status === 'ASSOCIATED' && resource.status === 'ASSOCIATED') return { status: 'ASSOCIATION_ACCEPTED' }
  if (principal?.status === 'ASSOCIATING' && resource.status === 'ASSOCIATED') return { status: 'READY' }
  if (before === 'CREATING' && principal?.status === 'FAILED') return failed('account', principal)
  // The invitation was declined or expired, or the account left: it needs another invitation.
  const isOver = principal ? ENDED_STATES.includes(principal.status) : !isNew
  return { status: isOver ? 'ASSOCIATION_REQUEST_EXPIRED' : before }
}

const failed = (subject: string, association: Associated | undefined): ShareStatus => ({
  status: 'CREATION_FAILED',
  reason: `the ${subject} is ${association?.status} at AWS: ${association?.statusMessage ?? 'no reason given'}`,
})
