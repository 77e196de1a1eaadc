import { escapeJson, type JsonPiece, joinText } from '../../src/engine/json-bytes.ts'

export interface Field {
  name: string
  dataTypeID: number
}

/** The columns of a result. Their JSON is cached, because all results of a plan have the same columns. */
export interface Columns {
  readonly json: string
  readonly fields: readonly Field[]
}

export const NO_COLUMNS: Columns = { json: '[]', fields: [] }

/** Keeps only the name and type of each column, which drivers use: all that Postgres sends would be most of a small reply. */
export function columnsOf(described: readonly Field[]): Columns {
  const fields = described.map(({ name, dataTypeID }) => ({ name, dataTypeID }))
  return { json: JSON.stringify(fields), fields }
}

export interface ReplyFormat {
  isBatch: boolean
  /** Values stay the text that Postgres sent. */
  isRaw: boolean
  asArray: boolean
  bytesMax: number
  /** The value that follows the JSON as it is, in which it is null: that of the first row of a statement. */
  separate?: { statement: number; column: number } | undefined
}

/** Text longer than this is encoded to bytes; a smaller reply stays one string. */
const PART_LENGTH = 64 * 1024

/**
 * Builds the JSON of a reply row by row: as JavaScript objects, the rows would take many times the memory of what Postgres sent.
 * The member names are those of Neon's HTTP protocol.
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
  private value: JsonPiece[] = []
  private encodeValue: ((text: string) => string) | undefined
  private isSeparate = false
  private separate: JsonPiece[] | undefined

  constructor(format: ReplyFormat) {
    this.format = format
    this.text = format.isBatch ? '{"results":[' : ''
  }

  row(columns: Columns, values: readonly (string | null)[]) {
    const { isRaw, asArray } = this.format
    if (isRaw && asArray && !this.hasSeparate()) {
      this.text += this.separator(columns) + JSON.stringify(values)
      this.encodeIfLong()
      return
    }
    this.beginRow(columns)
    for (const [i, value] of values.entries()) {
      this.beginValue(columns, i, value === null)
      if (value === null) continue
      this.part(value)
      this.endValue()
    }
    this.endRow()
  }

  beginRow(columns: Columns) {
    this.text += this.separator(columns) + (this.format.asArray ? '[' : '{')
  }

  beginValue({ fields }: Columns, index: number, isNull: boolean) {
    const { isRaw, asArray, separate } = this.format
    const field = fields[index]
    if (index > 0) this.text += ','
    if (!asArray) this.text += `${JSON.stringify(field?.name ?? '')}:`
    this.encodeValue = isRaw ? undefined : ENCODERS[field?.dataTypeID ?? 0]
    this.value = []
    this.isSeparate = separate?.column === index && separate.statement === this.results && this.rows === 1
    if (this.isSeparate && !isNull) this.separate = []
    if (isNull || this.isSeparate) this.text += 'null'
    else if (!this.encodeValue) this.text += '"'
  }

  part(part: JsonPiece) {
    if (this.isSeparate) this.separate?.push(part)
    else if (this.encodeValue && this.encodeValue !== asIs) this.value.push(part)
    else if (typeof part === 'string') this.text += this.encodeValue ? part : JSON.stringify(part).slice(1, -1)
    else {
      this.encode()
      this.push(this.encodeValue ? part : escapeJson(part))
    }
    this.encodeIfLong()
  }

  endValue() {
    if (this.isSeparate) return
    this.text += this.encodeValue ? this.encodeValue(joinText(this.value)) : '"'
  }

  endRow() {
    this.text += this.format.asArray ? ']' : '}'
    this.encodeIfLong()
  }

  complete(columns: Columns, tag: string) {
    if (this.rows === 0) this.text += this.head(columns)
    this.rows = 0
    this.results += 1
    const count = /\d+$/.exec(tag)
    const { asArray } = this.format
    this.text += `],"command":"${firstWord(tag)}","rowCount":${count ? count[0] : null},"rowAsArray":${asArray},"viaNeonProxy":true}`
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

  private separator(columns: Columns): string {
    this.rows += 1
    return this.rows === 1 ? this.head(columns) : ','
  }

  private head({ json }: Columns): string {
    return `${this.results > 0 ? ',' : ''}{"fields":${json},"rows":[`
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

const asIs = (text: string) => text
// JSON has no NaN and no infinity, so those stay text.
const asNumber = (text: string) => (Number.isFinite(Number(text)) ? text : JSON.stringify(text))

/** Encoders by type oid, for the types that JSON can represent without loss. */
const ENCODERS: Record<number, (text: string) => string> = {
  16: (text) => (text === 't' ? 'true' : 'false'),
  21: asIs,
  23: asIs,
  26: asIs,
  700: asNumber,
  701: asNumber,
  114: asIs,
  3802: asIs,
}
