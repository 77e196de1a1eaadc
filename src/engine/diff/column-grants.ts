import { type DependencyEdge, encodeId, type Fact, type FactBase } from '@supabase/pg-delta/core'
import type { Action } from '@supabase/pg-delta/plan'
import { quoteIdentifier } from '../names.ts'
import { statementsOf } from './extra-facts.ts'

/** Grants that must be repeated because `REVOKE ALL ON TABLE` also revokes rights on columns. */
export function revokedColumnGrants(actions: readonly Action[], desired: FactBase): string[] {
  const acls = actions.filter(({ sql }) => sql.startsWith('REVOKE ALL ON TABLE ')).flatMap(aclsOf)
  if (acls.length === 0) return []
  const revoked = new Set(acls.map(encodeId))
  const relations = new Set(acls.map(({ target }) => encodeId(target)))
  const isOnRelation = ({ to }: DependencyEdge) => relations.has(encodeId(to))
  return desired.facts().flatMap((fact) => {
    const { id } = fact
    if (id.kind === 'extensionIntent' && desired.outgoingEdges(id).some(isOnRelation)) {
      return statementsOf(fact).filter((sql) => sql.startsWith('GRANT '))
    }
    if (id.kind !== 'acl' || id.column === undefined) return []
    return revoked.has(encodeId({ kind: 'acl', target: id.target, grantee: id.grantee })) ? grantsOf(fact) : []
  })
}

const aclsOf = ({ produces, consumes, destroys }: Action) =>
  [...produces, ...consumes, ...destroys].flatMap((id) => (id.kind === 'acl' ? [id] : []))

function grantsOf({ id, payload }: Fact): string[] {
  if (id.kind !== 'acl' || !('schema' in id.target) || !('name' in id.target)) return []
  const { schema, name } = id.target
  const column = quoteIdentifier(id.column ?? '')
  const grantee = id.grantee === 'PUBLIC' ? 'PUBLIC' : quoteIdentifier(id.grantee)
  const grant = (privileges: readonly string[], suffix: string) =>
    privileges.length === 0
      ? []
      : [
          `GRANT ${privileges.map((privilege) => `${privilege} (${column})`).join(', ')} ON TABLE ${quoteIdentifier(schema)}.${quoteIdentifier(name)} TO ${grantee}${suffix}`,
        ]
  const grantable = namesIn(payload.grantable)
  const plain = namesIn(payload.privileges).filter((privilege) => !grantable.includes(privilege))
  return [...grant(plain, ''), ...grant(grantable, ' WITH GRANT OPTION')]
}

const namesIn = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : [])
