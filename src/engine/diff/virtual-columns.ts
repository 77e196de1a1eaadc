type Row = Record<string, unknown>

/** Appends a comment to the expressions of virtual columns: the library writes every generated column as STORED. */
export const markVirtual =
  (marker: string) =>
  (row: Row): Row =>
    row.generated === 'v' ? { ...row, default_expr: `${String(row.default_expr)}${comment(marker)}` } : row

export const unmarkVirtual = (sql: string, marker: string) => sql.replaceAll(`${comment(marker)}) STORED`, ') VIRTUAL')

const comment = (marker: string) => ` /* ${marker} */`
