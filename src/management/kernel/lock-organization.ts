import { and, eq, isNull } from 'drizzle-orm'
import { organizations } from '../../model/tables/index.ts'
import { ApiError } from '../../platform/http/error.ts'
import type { Mutation } from './mutate.ts'

/**
 * Locks an organization, so that changes to what it has run one after another. Fails if an operator has removed the organization since
 * the caller was authorized.
 */
export async function lockOrganization({ tx }: Pick<Mutation, 'tx'>, id: string): Promise<void> {
  const [organization] = await tx
    .select({ id: organizations.id })
    .from(organizations)
    .where(and(eq(organizations.id, id), isNull(organizations.removedAt)))
    .for('no key update')
  if (!organization) throw new ApiError('not_found.organization')
}
