import { ApiError } from '../../../platform/http/error.ts'

interface Written {
  id?: string | undefined
}

export const withIds = <Cell extends Written>(cells: readonly Cell[]) =>
  cells.map((cell) => ({ ...cell, id: cell.id ?? crypto.randomUUID() }))

/** Clients tell cells apart by their ids. */
export function requireDistinct(cells: readonly Written[]): void {
  const given = cells.map(({ id }) => id)
  const again = given.findIndex((id, n) => id !== undefined && given.indexOf(id) < n)
  if (again !== -1) throw refused('notebook_cell_duplicate', again, 'is the id of a cell before it')
}

/** Who names a cell means one that is there; a new one gets its id here. */
export function requireKnown(cells: readonly Written[], known: readonly string[]): void {
  const unknown = cells.findIndex(({ id }) => id !== undefined && !known.includes(id))
  if (unknown !== -1) throw refused('notebook_cell_unknown', unknown, 'is the id of no cell of the notebook')
}

const refused = (code: 'notebook_cell_duplicate' | 'notebook_cell_unknown', n: number, message: string) =>
  new ApiError(code, { issues: [{ field: `body.data.attributes.content.cells.${n}.id`, code: 'refused', message }] })
