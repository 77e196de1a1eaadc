export const ADDED_VALUE = /^ALTER TYPE .+ ADD VALUE (?:IF NOT EXISTS )?'((?:[^']|'')*)'/s

/** Inserts COMMIT before statements that may use a new enum value: Postgres allows its use only after a commit. */
export function commitBeforeUse(statements: readonly string[]): string[] {
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

/** A value with quotes or backslashes always counts, because it is escaped once more inside an array. */
const mayMention = (sql: string, value: string) => /["\\]/.test(value) || sql.includes(value)
