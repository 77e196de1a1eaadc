/** The first row that a statement returned. Throws where it returned none, which no caller can have caused. */
export function requireRow<Row>([row]: readonly Row[]): Row {
  if (row === undefined) throw new Error('the statement returned no row')
  return row
}
