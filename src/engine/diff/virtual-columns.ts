type Row = Record<string, unknown>

/**
 * The library takes every generated column for a stored one: the expression of a virtual one carries a mark through it.
 */
export const markVirtual =
  (mark: string) =>
  (row: Row): Row =>
    row.generated === 'v' ? { ...row, default_expr: `${String(row.default_expr)}${comment(mark)}` } : row

export const unmarkVirtual = (sql: string, mark: string) => sql.replaceAll(`${comment(mark)}) STORED`, ') VIRTUAL')

const comment = (mark: string) => ` /* ${mark} */`
