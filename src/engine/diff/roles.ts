import type { ProjectNames } from '../names.ts'

type Row = Record<string, unknown>

export interface RoleNames {
  /** Stands for the owner of either project while they are compared; no role is called so. */
  owner: string
  /** The login roles of the project's services, by the names they have in `from`. */
  services: string[]
  /** Makes the names in the rows of one project those above. */
  of(own: ProjectNames): (row: Row) => Row
}

/** The columns of the library's queries that hold names of roles. Elsewhere the same text is the user's own. */
const ROLE_COLUMNS = new Set(['owner', 'grantee', 'role', 'roles', 'member', 'acl'])

/** Of a row that is a role itself the name is such a column too. */
const isRole = (row: Row) => 'rolsuper' in row

/** Each project has login roles of its own, which would make every object of a branch differ from its parent's. */
export function neutralRoles(from: ProjectNames): RoleNames {
  const owner = `owner-${crypto.randomUUID()}`
  return {
    owner,
    services: [from.runner, from.reader, from.storage],
    of(own) {
      const renamed = new Map([
        [own.runner, from.runner],
        [own.reader, from.reader],
        [own.storage, from.storage],
        // The owner may be the runner too.
        [own.owner, owner],
      ])
      return (row) =>
        Object.fromEntries(
          Object.entries(row).map(([column, value]) => [
            column,
            ROLE_COLUMNS.has(column) || (column === 'name' && isRole(row)) ? replaceNames(value, renamed) : value,
          ]),
        )
    },
  }
}

function replaceNames(value: unknown, names: ReadonlyMap<string, string>): unknown {
  if (typeof value === 'string') return names.get(value) ?? value
  if (Array.isArray(value)) return value.map((item) => replaceNames(item, names))
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replaceNames(item, names)]))
}
