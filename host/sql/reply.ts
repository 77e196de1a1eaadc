import { escapeJson, type JsonPiece, joinText } from '../../src/engine/json-bytes.ts'

export interface Field {
  name: string
  dataTypeID: number
}

/** The columns of a result; their JSON is kept, as a plan's results all have it. */
export interface Columns {
  readonly json: string
  readonly fields: readonly Field[]
}

export const NO_COLUMNS: Columns = { json: '[]', fields: [] }

/** Drivers go by the name and the type: all that Postgres says of a column would be most of a reply. */
export function columnsOf(described: readonly Field[]): Columns {
  const fields = described.map(({ name, dataTypeID }) => ({ name, dataTypeID }))
  return { json: JSON.stringify(fields), fields }
}

export interface ReplyFormat {
  isBatch: boolean
  /** Every value stays the text that Postgres sent. */
  isRaw: boolean
  asArray: boolean
  bytesMax: number
}

/** Small replies are one text; of larger ones every part is encoded. */
const PART_LENGTH = 64 * 1024

/**
 * The JSON of a reply, written row by row: as rows of JavaScript, a result would take many times what Postgres sent.
 * The names of its members are those of Neon's HTTP protocol.
 */
export class Reply {
  readonly parts: Uint8Array[] = []
  /** Of the parts. */
  bytes = 0
  text: string
  isTooLarge = false
  private readonly format: ReplyFormat
  private results = 0
  private rows = 0
  private value: JsonPiece[] = []
  private encodeValue: ((text: string) => string) | undefined

  constructor(format: ReplyFormat) {
    this.format = format
    this.text = format.isBatch ? '{"results":[' : ''
  }

  row(columns: Columns, values: readonly (string | null)[]) {
    const { isRaw, asArray } = this.format
    if (isRaw && asArray) {
      this.text += this.separator(columns) + JSON.stringify(values)
      this.encodeFull()
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
    const { isRaw, asArray } = this.format
    const field = fields[index]
    if (index > 0) this.text += ','
    if (!asArray) this.text += `${JSON.stringify(field?.name ?? '')}:`
    this.encodeValue = isRaw ? undefined : ENCODERS[field?.dataTypeID ?? 0]
    this.value = []
    if (isNull) this.text += 'null'
    else if (!this.encodeValue) this.text += '"'
  }

  part(part: JsonPiece) {
    if (this.encodeValue && this.encodeValue !== asIs) this.value.push(part)
    else if (typeof part === 'string') this.text += this.encodeValue ? part : JSON.stringify(part).slice(1, -1)
    else {
      this.encode()
      this.push(this.encodeValue ? part : escapeJson(part))
    }
    this.encodeFull()
  }

  endValue() {
    this.text += this.encodeValue ? this.encodeValue(joinText(this.value)) : '"'
  }

  endRow() {
    this.text += this.format.asArray ? ']' : '}'
    this.encodeFull()
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
    if (this.parts.length > 0) this.encode()
  }

  private separator(columns: Columns): string {
    this.rows += 1
    return this.rows === 1 ? this.head(columns) : ','
  }

  private head({ json }: Columns): string {
    return `${this.results > 0 ? ',' : ''}{"fields":${json},"rows":[`
  }

  private encodeFull() {
    if (this.text.length > PART_LENGTH) this.encode()
  }

  private encode() {
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

/** By type id: the types that JSON can say without loss. */
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
