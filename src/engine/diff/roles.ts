import type { ProjectNames } from '../names.ts'

type Row = Record<string, unknown>

export interface RoleNames {
  /** Placeholder for the owner of either project during the comparison; not the name of a role. */
  owner: string
  /** The login roles of the project's services, by their names in `from`. */
  services: string[]
  /** Returns a function that replaces one project's role names in a row by the names above. */
  of(own: ProjectNames): (row: Row) => Row
}

/** Columns of the library's queries that contain role names. In other columns the same text is the user's. */
const ROLE_COLUMNS = new Set(['owner', 'grantee', 'role', 'roles', 'member', 'acl'])

/** Whether the row describes a role, so that its column `name` contains a role name too. */
const isRole = (row: Row) => 'rolsuper' in row

/** Makes role names comparable: each project has its own login roles, so every object of a branch would differ. */
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
