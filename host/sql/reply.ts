import { escapeJson, type JsonPiece } from '../../src/engine/json-bytes.ts'

export interface Field {
  name: string
  dataTypeID: number
}

export const NO_COLUMNS = '[]'

/** The JSON of the name and type of each column, which drivers use: all that Postgres sends would be most of a small reply. */
export const columnsJson = (described: readonly Field[]): string =>
  JSON.stringify(described.map(({ name, dataTypeID }) => ({ name, dataTypeID })))

export interface ReplyFormat {
  isBatch: boolean
  bytesMax: number
  /** The value that follows the JSON as it is, in which it is null: that of the first row of a statement. */
  separate?: { statement: number; column: number } | undefined
}

/** Text longer than this is encoded to bytes; a smaller reply stays one string. */
const PART_LENGTH = 64 * 1024

/**
 * Builds the JSON of a reply row by row: as JavaScript objects, the rows would take many times the memory of what Postgres sent.
 * The member names are those of Neon's HTTP protocol. A row is an array of the texts that Postgres sent, as Neon's driver requests it.
 */
export class Reply {
  readonly parts: Uint8Array[] = []
  /** Total size of `parts`. */
  bytes = 0
  text: string
  /** Size of the JSON if a value follows it. */
  jsonBytes: number | undefined
  isTooLarge = false
  private readonly format: ReplyFormat
  private results = 0
  private rows = 0
  private isSeparate = false
  private separate: JsonPiece[] | undefined

  constructor(format: ReplyFormat) {
    this.format = format
    this.text = format.isBatch ? '{"results":[' : ''
  }

  row(columns: string, values: readonly (string | null)[]) {
    if (!this.hasSeparate()) {
      this.text += this.separator(columns) + JSON.stringify(values)
      this.encodeIfLong()
      return
    }
    this.beginRow(columns)
    for (const [i, value] of values.entries()) {
      this.beginValue(i, value === null)
      if (value === null) continue
      this.part(value)
      this.endValue()
    }
    this.endRow()
  }

  beginRow(columns: string) {
    this.text += `${this.separator(columns)}[`
  }

  beginValue(index: number, isNull: boolean) {
    const { separate } = this.format
    if (index > 0) this.text += ','
    this.isSeparate = separate?.column === index && separate.statement === this.results && this.rows === 1
    if (this.isSeparate && !isNull) this.separate = []
    this.text += isNull || this.isSeparate ? 'null' : '"'
  }

  part(part: JsonPiece) {
    if (this.isSeparate) this.separate?.push(part)
    else if (typeof part === 'string') this.text += JSON.stringify(part).slice(1, -1)
    else {
      this.encode()
      this.push(escapeJson(part))
    }
    this.encodeIfLong()
  }

  endValue() {
    if (!this.isSeparate) this.text += '"'
  }

  endRow() {
    this.text += ']'
    this.encodeIfLong()
  }

  complete(columns: string, tag: string) {
    if (this.rows === 0) this.text += this.head(columns)
    this.rows = 0
    this.results += 1
    const count = /\d+$/.exec(tag)
    this.text += `],"command":"${firstWord(tag)}","rowCount":${count ? count[0] : null},"rowAsArray":true,"viaNeonProxy":true}`
  }

  finish() {
    if (this.format.isBatch) this.text += ']}'
    if (this.separate) this.jsonBytes = this.bytes + Buffer.byteLength(this.text)
    for (const part of this.separate ?? []) {
      if (typeof part === 'string') this.text += part
      else {
        this.encode()
        this.push(part)
      }
    }
    if (this.parts.length > 0 || this.text.length > PART_LENGTH) this.encode()
  }

  private hasSeparate(): boolean {
    return this.format.separate?.statement === this.results && this.rows === 0
  }

  private separator(columns: string): string {
    this.rows += 1
    return this.rows === 1 ? this.head(columns) : ','
  }

  private head(columns: string): string {
    return `${this.results > 0 ? ',' : ''}{"fields":${columns},"rows":[`
  }

  private encodeIfLong() {
    if (this.text.length > PART_LENGTH) this.encode()
  }

  private encode() {
    if (this.text === '') return
    this.push(Buffer.from(this.text))
    this.text = ''
  }

  private push(part: Uint8Array) {
    this.isTooLarge ||= this.bytes + part.length > this.format.bytesMax
    if (this.isTooLarge) return
    this.bytes += part.length
    this.parts.push(part)
  }
}

export function firstWord(tag: string): string {
  const end = tag.indexOf(' ')
  return end < 0 ? tag : tag.slice(0, end)
}
