export const ADDED_VALUE = /^ALTER TYPE .+ ADD VALUE (?:IF NOT EXISTS )?'((?:[^']|'')*)'/s

/**
 * Postgres lets a new enum value be used after a commit only: there is one where a statement may use it, nowhere else.
 */
export function valuesInUse(statements: readonly string[]): string[] {
  let added: string[] = []
  return statements.flatMap((sql) => {
    const [, value] = ADDED_VALUE.exec(sql) ?? []
    if (value !== undefined) {
      added.push(value)
      return [sql]
    }
    if (!added.some((name) => mayMention(sql, name))) return [sql]
    added = []
    return ['COMMIT', sql]
  })
}

/** Inside an array's text a value is escaped once more. */
const mayMention = (sql: string, value: string) => /["\\]/.test(value) || sql.includes(value)
