import pg from 'pg'
import { parameterText } from '../../src/engine/values.ts'
import type { Lease } from './connections.ts'

export interface Statement {
  query: string
  params: unknown[]
}

/** As much of a column as drivers go by: all that Postgres says of it would be most of a reply. */
export interface Field {
  name: string
  dataTypeID: number
}

export interface TextResult {
  /** Postgres's command tag, such as `INSERT 0 1`; empty for an empty statement. */
  tag: string
  fields: Field[]
  rows: (string | null)[][]
}

export interface Work {
  statements: readonly Statement[]
  /** Begins the transaction that they make together; absent for a statement by itself. */
  begin?: string | undefined
  /** Of rows, at most. */
  bytesMax: number
}

interface Outcome {
  results: TextResult[]
  /** What the lease wants done after a transaction was done too. */
  isReset: boolean
}

/** Runs statements in the extended protocol and in one round trip; values stay the text that Postgres sent. */
export function runTextQueries(lease: Lease, work: Work): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    lease.client.query(new TextQueries(lease, work, { resolve, reject }))
  })
}

class ResultTooLarge extends Error {
  readonly code = '54000'
}

interface Settle {
  resolve(outcome: Outcome): void
  reject(error: Error): void
}

/** A statement as a connection has prepared it. What it returns cannot change without an error. */
export interface Plan {
  name: string
  fields: Field[]
}

const PLANS_MAX = 500

// The driver pipelines only its own Query class, so we extend it; it calls these methods on each message.
class TextQueries extends pg.Query {
  private readonly lease: Lease
  private readonly work: Work
  private readonly settle: Settle
  private readonly plans: Plan[] = []
  private readonly newTexts: string[] = []
  private readonly results: TextResult[] = []
  private rowsOfNext: TextResult['rows'] = []
  private bytes = 0

  constructor(lease: Lease, work: Work, settle: Settle) {
    super('')
    this.lease = lease
    this.work = work
    this.settle = settle
  }

  override submit = (connection: unknown) => {
    const wire = connection as Wire
    const { statements, begin } = this.work
    wire.stream.cork()
    if (begin) this.send(wire, begin)
    for (const { query, params } of statements) this.send(wire, query, params)
    if (begin) for (const query of ['COMMIT', ...this.lease.reset]) this.send(wire, query)
    wire.sync()
    wire.stream.uncork()
  }

  private send(wire: Wire, text: string, params: readonly unknown[] = []) {
    const known = this.lease.plans?.get(text)
    const plan = known ?? this.newPlan(text)
    if (!known) {
      // One of that name may be left of a transaction that failed.
      wire.close({ type: 'S', name: plan.name })
      wire.parse({ name: plan.name, text })
    }
    wire.bind({ statement: plan.name, values: params.map(parameterText) })
    if (!known) wire.describe({ type: 'P' })
    wire.execute()
    this.plans.push(plan)
  }

  private newPlan(text: string): Plan {
    const { plans } = this.lease
    if (!plans || plans.size >= PLANS_MAX) return { name: '', fields: [] }
    const plan = { name: `s${plans.size}`, fields: [] }
    plans.set(text, plan)
    this.newTexts.push(text)
    return plan
  }

  handleRowDescription({ fields }: { fields: Field[] }) {
    const plan = this.plans[this.results.length]
    if (plan) plan.fields = fields.map(({ name, dataTypeID }) => ({ name, dataTypeID }))
  }

  handleDataRow(message: { length: number; fields: (string | null)[] }) {
    const { bytesMax } = this.work
    this.bytes += message.length
    if (this.bytes <= bytesMax) {
      this.rowsOfNext.push(message.fields)
      return
    }
    this.handleError(new ResultTooLarge(`the result is larger than ${bytesMax} bytes`))
    this.lease.abort()
  }

  handleCommandComplete({ text }: { text: string }) {
    this.results.push({ tag: text, fields: this.plans[this.results.length]?.fields ?? [], rows: this.rowsOfNext })
    this.rowsOfNext = []
  }

  handleEmptyQuery() {
    this.handleCommandComplete({ text: '' })
  }

  handleError(error: Error) {
    // What was committed stays done, whatever becomes of the connection.
    if (this.isCommitted()) {
      this.resolve({ isReset: false })
      return
    }
    for (const text of this.newTexts) this.lease.plans?.delete(text)
    this.settle.reject(error)
  }

  handleReadyForQuery() {
    this.resolve({ isReset: this.isCommitted() })
  }

  private isCommitted(): boolean {
    return this.work.begin !== undefined && this.results.length >= this.work.statements.length + 2
  }

  private resolve({ isReset }: { isReset: boolean }) {
    const { begin, statements } = this.work
    const first = begin ? 1 : 0
    this.settle.resolve({ results: this.results.slice(first, first + statements.length), isReset })
  }
}

/** The part of the driver's connection that its types leave out. */
interface Wire {
  stream: { cork(): void; uncork(): void }
  close(message: { type: 'S'; name: string }): void
  parse(message: { name: string; text: string }): void
  bind(message: { statement: string; values: readonly (string | null)[] }): void
  describe(message: { type: 'P' }): void
  execute(): void
  sync(): void
}
