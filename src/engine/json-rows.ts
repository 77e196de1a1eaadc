import { SqlResultTooLarge } from './engine-errors.ts'
import { escapeJson, type JsonPiece, joinText } from './json-bytes.ts'
import { asIs, asText, type Encode, encoderOf } from './value-encoders.ts'

interface Field {
  name: string
  dataTypeID: number
}

/** Receives the rows of a result as Postgres sends them; a long row arrives in parts. */
export interface RowSink {
  row(values: readonly (string | null)[]): void
  beginRow(): void
  beginValue(index: number, isNull: boolean): void
  /** A short value as text, or a part of a long one as UTF-8, cut at any byte. */
  part(part: string | Uint8Array): void
  endValue(): void
  endRow(): void
}

interface RowWriter extends RowSink {
  describe(fields: readonly Field[]): void
  reset(): void
  /** JSON text of the array of rows, in pieces. */
  result(): JsonPiece[]
}

/** Text longer than this is encoded: as strings, the rows of a large result would take several times its size until they are sent. */
const PIECE_LENGTH = 64 * 1024

const encoder = new TextEncoder()

/**
 * Writes rows as JSON text while they arrive, so that they are in memory only once. Above `jsonLengthMax` it calls `fail`
 * with `SqlResultTooLarge` once and ignores the rest.
 */
export function rowWriter(jsonLengthMax: number, fail: (error: Error) => void): RowWriter {
  let columns: ReadonlyMap<number, Column> = new Map()
  let pieces: JsonPiece[] = []
  let text = ''
  let length = 0
  let rowCount = 0
  let memberCount = 0
  let column: Column | undefined
  let value: JsonPiece[] = []

  function write(more: JsonPiece) {
    if (length > jsonLengthMax) return
    length += more.length
    if (length > jsonLengthMax) return fail(new SqlResultTooLarge(jsonLengthMax))
    if (typeof more === 'string') {
      text += more
      if (text.length < PIECE_LENGTH) return
      pieces.push(encoder.encode(text))
    } else pieces.push(text, more)
    text = ''
  }

  function reset() {
    pieces = []
    text = ''
    length = 0
    rowCount = 0
  }

  function nextRow(): string {
    rowCount += 1
    return rowCount === 1 ? '' : ','
  }

  return {
    reset,
    describe(fields) {
      reset()
      columns = columnsByIndex(fields)
    },
    row: (values) => write(nextRow() + rowText(columns, values)),
    beginRow() {
      memberCount = 0
      write(`${nextRow()}{`)
    },
    beginValue(index, isNull) {
      column = columns.get(index)
      value = []
      if (!column) return
      memberCount += 1
      write(`${memberCount === 1 ? '' : ','}${column.key}${isNull ? 'null' : ''}`)
      if (!isNull && column.encode === asText) write('"')
    },
    part(part) {
      if (!column) return
      if (column.encode !== asText && column.encode !== asIs) value.push(part)
      else if (column.encode === asIs) write(part)
      else write(typeof part === 'string' ? asText(part).slice(1, -1) : escapeJson(part))
    },
    endValue() {
      if (column?.encode === asText) write('"')
      else if (column && column.encode !== asIs) write(column.encode(joinText(value)))
    },
    endRow: () => write('}'),
    result: () => ['[', ...pieces, text, ']'],
  }
}

interface Column {
  key: string
  encode: Encode
}

/** If several columns have the same name, the last one wins, as in a JSON object. */
function columnsByIndex(fields: readonly Field[]): Map<number, Column> {
  const indexes = new Map(fields.map(({ name }, index) => [name, index]))
  return new Map(
    [...indexes].map(([name, index]) => {
      const { dataTypeID = 0 } = fields[index] ?? {}
      return [index, { key: `${JSON.stringify(name)}:`, encode: encoderOf(dataTypeID) }]
    }),
  )
}

function rowText(columns: ReadonlyMap<number, Column>, values: readonly (string | null)[]): string {
  const members = Array.from(columns, ([index, { key, encode }]) => {
    const text = values[index] ?? null
    return key + (text === null ? 'null' : encode(text))
  })
  return `{${members.join(',')}}`
}
