import pg from 'pg'
import type { Lease } from './connections.ts'

export interface Statement {
  query: string
  params: unknown[]
}

export interface TextResult {
  /** Postgres's command tag, such as `INSERT 0 1`; empty for an empty statement. */
  tag: string
  fields: pg.FieldDef[]
  rows: (string | null)[][]
}

/** Runs one statement in the extended protocol; values stay the text Postgres sent, `bytesMax` of them at most. */
export function runTextQuery(lease: Lease, statement: Statement, bytesMax: number): Promise<TextResult> {
  return new Promise((resolve, reject) => {
    const tooLarge = () => {
      reject(new ResultTooLarge(`the result is larger than ${bytesMax} bytes`))
      lease.abort()
    }
    const name = lease.statementName(statement.query)
    lease.client.query(new TextQuery(statement, { name, bytesMax, tooLarge, resolve, reject }))
  })
}

class ResultTooLarge extends Error {
  readonly code = '54000'
}

interface Outcome {
  name: string | undefined
  bytesMax: number
  tooLarge(): void
  resolve(result: TextResult): void
  reject(error: Error): void
}

// The driver pipelines only its own Query class, so we extend it; it calls these methods on each message.
class TextQuery extends pg.Query {
  private readonly result: TextResult = { tag: '', fields: [], rows: [] }
  private readonly outcome: Outcome
  private bytes = 0

  constructor({ query, params }: Statement, outcome: Outcome) {
    super({ text: query, values: params, name: outcome.name, queryMode: 'extended' } as pg.QueryConfig)
    this.outcome = outcome
  }

  handleRowDescription(message: { fields: pg.FieldDef[] }) {
    this.result.fields = message.fields
  }

  handleDataRow(message: { length: number; fields: (string | null)[] }) {
    this.bytes += message.length
    if (this.bytes <= this.outcome.bytesMax) this.result.rows.push(message.fields)
    else this.outcome.tooLarge()
  }

  handleCommandComplete(message: { text: string }) {
    this.result.tag = message.text
  }

  handleError(error: Error) {
    this.outcome.reject(error)
  }

  handleReadyForQuery() {
    this.outcome.resolve(this.result)
  }
}
