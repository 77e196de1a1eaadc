import type { AssociationStatus } from '../../../model/tables/index.ts'
import type { Associated, AssociationState } from './aws-ram.ts'

/** How a share stands at AWS. */
export interface Observed {
  /** Of the database; absent where AWS knows of none. */
  resource: Associated | undefined
  /** Of the account; absent where AWS knows of none. */
  principal: Associated | undefined
  /** Whether it was made so lately that AWS may not tell of it yet. */
  isNew: boolean
}

interface Standing {
  status: AssociationStatus
  /** Why it has failed. */
  reason?: string
}

const OVER: readonly (AssociationState | undefined)[] = ['FAILED', 'DISASSOCIATING', 'DISASSOCIATED']

/** What becomes of a status by what AWS tells; it stays where that decides nothing, as while a share is suspended. */
export function standingOf(before: AssociationStatus, { resource, principal, isNew }: Observed): Standing {
  if (OVER.includes(resource?.status)) return failed('database', resource)
  if (!resource) return isNew ? { status: before } : { status: 'CREATION_FAILED', reason: 'AWS has no such share' }
  if (principal?.status === 'ASSOCIATED' && resource.status === 'ASSOCIATED') return { status: 'ASSOCIATION_ACCEPTED' }
  if (principal?.status === 'ASSOCIATING' && resource.status === 'ASSOCIATED') return { status: 'READY' }
  if (before === 'CREATING' && principal?.status === 'FAILED') return failed('account', principal)
  // Declined, not answered in time, or left again: the account needs another invitation.
  const isOver = principal ? OVER.includes(principal.status) : !isNew
  return { status: isOver ? 'ASSOCIATION_REQUEST_EXPIRED' : before }
}

const failed = (what: string, association: Associated | undefined): Standing => ({
  status: 'CREATION_FAILED',
  reason: `the ${what} is ${association?.status} at AWS: ${association?.statusMessage ?? 'it does not say why'}`,
})
