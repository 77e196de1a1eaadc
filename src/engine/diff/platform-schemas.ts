import type { Fact, FactBase } from '@supabase/pg-delta/core'
import type { Policy } from '@supabase/pg-delta/policy'
import { APP_OWNER } from '../hosted-names.ts'
import { INTERNAL_SCHEMA, STORAGE_OWNER } from '../storage/names.ts'
import type { RoleNames } from './roles.ts'

/** Schemas that every project gets from its template or from the services. */
const PLATFORM_SCHEMAS = ['extensions', INTERNAL_SCHEMA, 'storage', 'supabase_migrations']
/**
 * Objects outside of schemas. With a list of schemas these are not compared. Extensions are, because tables may need them.
 */
const GLOBAL_KINDS = ['publication', 'subscription', 'eventTrigger', 'fdw', 'server', 'userMapping']
/** The platform's triggers on its tables, which are not compared. */
const PLATFORM_TRIGGERS = ['remember_deleted', 'remember_replaced', 'remember_truncated', 'update_objects_updated_at']

export const schemaFilter =
  (schemas: readonly string[] | undefined) =>
  (name: string): boolean =>
    schemas ? schemas.includes(name) : !PLATFORM_SCHEMAS.includes(name)

type Match = NonNullable<Policy['filter']>[number]['match']

/** The parts of the two databases to compare, and the names outside of them that these parts may refer to. */
export function comparisonScope(sides: readonly FactBase[], schemas: readonly string[] | undefined, roles: RoleNames) {
  const facts = sides.flatMap((side) => side.facts())
  const isWanted = schemaFilter(schemas)
  const names = namesOf(facts, 'schema')
  const unwanted = names.filter((name) => !isWanted(name))
  // A name that would match a wanted schema as a pattern is compared too, so that the wanted schema is not excluded.
  const excluded = unwanted.filter((name) => !names.some((other) => isWanted(other) && asPattern(name).test(other)))
  const includesStorage = !schemas || schemas.includes('storage')
  const policy: Policy = {
    id: 'project',
    assumedSchemas: excluded,
    filter: [
      exclude({
        // Rights of these roles, on any object and by default.
        all: [
          { kind: ['acl', 'defaultPrivilege'] },
          { idField: { field: 'grantee', glob: [...roles.services, APP_OWNER] } },
        ],
      }),
      ...(includesStorage ? matchPlatformTables().map(include) : []),
      exclude({ schema: excluded }),
      exclude({ all: [{ kind: 'schema' }, { name: excluded }] }),
      exclude({ target: { schema: excluded } }),
      exclude({ target: { kind: 'schema', name: excluded } }),
      exclude({ owner: STORAGE_OWNER }),
      ...(schemas ? matchWithoutSchema().map(exclude) : []),
    ],
  }
  return { policy, assumedRoles: [...namesOf(facts, 'role'), roles.owner, ...roles.services] }
}

/** The user's own policies and triggers on the platform's tables. */
function matchPlatformTables(): Match[] {
  const platformTrigger: Match = { all: [{ kind: 'trigger' }, { name: PLATFORM_TRIGGERS }] }
  return [{ all: [{ kind: ['policy', 'trigger'] }, { schema: 'storage' }, { not: platformTrigger }] }]
}

function matchWithoutSchema(): Match[] {
  const anySchema: Match = { idField: { field: 'schema', glob: '*' } }
  return [
    { kind: GLOBAL_KINDS },
    { target: { kind: GLOBAL_KINDS } },
    { all: [{ kind: 'defaultPrivilege' }, { not: anySchema }] },
  ]
}

const exclude = (match: Match) => ({ match, action: 'exclude' as const })
const include = (match: Match) => ({ match, action: 'include' as const })

function namesOf(facts: readonly Fact[], kind: 'schema' | 'role'): string[] {
  return [...new Set(facts.flatMap(({ id }) => (id.kind === kind ? [id.name] : [])))]
}

/** The pattern that the library reads a schema name as. */
const asPattern = (name: string) =>
  new RegExp(`^${name.replaceAll(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*')}$`)
