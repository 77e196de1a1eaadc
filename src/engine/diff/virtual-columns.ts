type Row = Record<string, unknown>

/** Appends a comment to the expressions of virtual columns: the library writes every generated column as STORED. */
export const markVirtual =
  (mark: string) =>
  (row: Row): Row =>
    row.generated === 'v' ? { ...row, default_expr: `${String(row.default_expr)}${comment(mark)}` } : row

export const unmarkVirtual = (sql: string, mark: string) => sql.replaceAll(`${comment(mark)}) STORED`, ') VIRTUAL')

const comment = (mark: string) => ` /* ${mark} */`
