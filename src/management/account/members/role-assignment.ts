import { and, inArray } from 'drizzle-orm'
import { ROLES, type Role } from '../../../model/roles.ts'
import { projects } from '../../../model/tables/index.ts'
import type { HeldRole, MemberChange } from './member-change.ts'

type Reader = Pick<MemberChange['tx'], 'select'>

/**
 * Returns the roles of a member after the assignment of a role in the given projects, or in the whole organization if `refs` is
 * undefined. The new role replaces the other roles there and a stronger role in the organization.
 */
export async function rolesAfterAssignment(
  tx: Reader,
  current: readonly HeldRole[],
  { role, refs }: { role: Role; refs: readonly string[] | undefined },
): Promise<HeldRole[]> {
  if (!refs) return [{ role, projectRef: null }]
  const remaining = (await withoutBranches(tx, current, refs)).filter(({ role: other, projectRef }) =>
    projectRef === null ? isWeaker(other, role) : other !== role && !refs.includes(projectRef),
  )
  return [...remaining, ...refs.map((projectRef) => ({ role, projectRef }))]
}

/** Drops the roles in branches of the given projects: a role in a project also applies to its branches. */
async function withoutBranches(tx: Reader, current: readonly HeldRole[], parents: readonly string[]) {
  const refs = current.flatMap(({ projectRef }) => projectRef ?? [])
  const branches = await tx
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(inArray(projects.ref, refs), inArray(projects.parentRef, [...parents])))
  return current.filter(({ projectRef }) => !branches.some(({ ref }) => ref === projectRef))
}

const isWeaker = (role: Role, than: Role) => ROLES.indexOf(role) > ROLES.indexOf(than)
