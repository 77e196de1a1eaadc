import { SqlResultTooLarge } from './engine.ts'
import { type Encode, encoderOf } from './values.ts'

interface Field {
  name: string
  dataTypeID: number
}

interface RowWriter {
  describe(fields: readonly Field[]): void
  add(values: readonly (string | null)[]): void
  reset(): void
  result(): { json: string; rowCount: number }
}

const ROWS_PER_CHUNK = 500

/** Writes rows as JSON text while they arrive, so that no second form of them is ever held. */
export function rowWriter(jsonLengthMax: number): RowWriter {
  let columns: readonly Column[] = []
  let chunks: string[] = []
  let pending: string[] = []
  let rowCount = 0
  let length = 0

  function reset() {
    chunks = []
    pending = []
    rowCount = 0
    length = 0
  }

  return {
    reset,
    describe(fields) {
      reset()
      columns = toColumns(fields)
    },
    add(values) {
      const row = rowText(columns, values)
      length += row.length + 1
      if (length > jsonLengthMax) throw new SqlResultTooLarge(jsonLengthMax)
      rowCount += 1
      pending.push(row)
      if (pending.length < ROWS_PER_CHUNK) return
      chunks.push(pending.join(','))
      pending = []
    },
    result() {
      const parts = pending.length > 0 ? [...chunks, pending.join(',')] : chunks
      return { json: `[${parts.join(',')}]`, rowCount }
    },
  }
}

interface Column {
  key: string
  index: number
  encode: Encode
}

/** Of columns with the same name the last one counts, as it does in a JSON object. */
function toColumns(fields: readonly Field[]): Column[] {
  const byName = new Map<string, Column>()
  for (const [index, { name, dataTypeID }] of fields.entries()) {
    byName.set(name, { key: `${JSON.stringify(name)}:`, index, encode: encoderOf(dataTypeID) })
  }
  return [...byName.values()]
}

function rowText(columns: readonly Column[], values: readonly (string | null)[]): string {
  const members = columns.map(({ key, index, encode }) => {
    const text = values[index] ?? null
    return key + (text === null ? 'null' : encode(text))
  })
  return `{${members.join(',')}}`
}
