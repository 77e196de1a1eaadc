import { and, inArray } from 'drizzle-orm'
import { ROLES, type Role } from '../../../model/roles.ts'
import { projects } from '../../../model/tables/index.ts'
import type { HeldRole, MemberChange } from './member-roles.ts'

type Reader = Pick<MemberChange['tx'], 'select'>

/**
 * What a member holds who is given a role in these projects, or in the whole organization without them: it takes the place of what it
 * outdoes, and of what would outdo it.
 */
export async function rolesAfterAssignment(
  tx: Reader,
  held: readonly HeldRole[],
  { role, refs }: { role: Role; refs: readonly string[] | undefined },
): Promise<HeldRole[]> {
  if (!refs) return [{ role, projectRef: null }]
  const staying = (await withoutBranches(tx, held, refs)).filter(({ role: other, projectRef }) =>
    projectRef === null ? isWeaker(other, role) : other !== role && !refs.includes(projectRef),
  )
  return [...staying, ...refs.map((projectRef) => ({ role, projectRef }))]
}

/** A role in a project holds in its branches, so none in them alone stays beside it. */
async function withoutBranches(tx: Reader, held: readonly HeldRole[], parents: readonly string[]) {
  const refs = held.flatMap(({ projectRef }) => projectRef ?? [])
  const branches = await tx
    .select({ ref: projects.ref })
    .from(projects)
    .where(and(inArray(projects.ref, refs), inArray(projects.parentRef, [...parents])))
  return held.filter(({ projectRef }) => !branches.some(({ ref }) => ref === projectRef))
}

const isWeaker = (role: Role, than: Role) => ROLES.indexOf(role) > ROLES.indexOf(than)
