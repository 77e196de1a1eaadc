import { ApiError } from '../../../platform/http/error.ts'

interface CellInput {
  id?: string | undefined
}

export const withIds = <Cell extends CellInput>(cells: readonly Cell[]) =>
  cells.map((cell) => ({ ...cell, id: cell.id ?? crypto.randomUUID() }))

/** Requires unique ids: clients identify cells by them. */
export function requireUniqueIds(cells: readonly CellInput[]): void {
  const ids = cells.map(({ id }) => id)
  const duplicate = ids.findIndex((id, n) => id !== undefined && ids.indexOf(id) < n)
  if (duplicate !== -1)
    throw cellError('notebook_cell_duplicate', duplicate, 'must be unique: an earlier cell has this id')
}

/** Requires that ids are those of existing cells: new cells get their id from the server. */
export function requireExistingIds(cells: readonly CellInput[], known: readonly string[]): void {
  const unknown = cells.findIndex(({ id }) => id !== undefined && !known.includes(id))
  if (unknown !== -1)
    throw cellError(
      'notebook_cell_unknown',
      unknown,
      'must be the id of a cell of the notebook, or absent for a new cell',
    )
}

const cellError = (code: 'notebook_cell_duplicate' | 'notebook_cell_unknown', n: number, message: string) =>
  new ApiError(code, { issues: [{ field: `body.data.attributes.content.cells.${n}.id`, code: 'refused', message }] })
