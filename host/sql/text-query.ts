import pg from 'pg'
import type { JsonPiece } from '../../src/engine/json-bytes.ts'
import { parameterText } from '../../src/engine/value-encoders.ts'
import type { Account } from './budget.ts'
import type { Plan } from './plans.ts'
import { Refusal } from './refusal.ts'
import { columnsJson, type Field, NO_COLUMNS, Reply, type ReplyFormat } from './reply.ts'
import type { RowSink } from './rows.ts'
import type { Session } from './session.ts'

export interface Statement {
  query: string
  params: unknown[]
}

export interface Work {
  statements: readonly Statement[]
  /** Statement that begins the transaction of a batch; undefined for a single statement. */
  begin?: string | undefined
  format: ReplyFormat
  /** Limit for the bytes that Postgres sends. */
  bytesMax: number
  account: Account
}

export interface Outcome {
  reply: Reply
  /** Postgres's command tags, such as `INSERT 0 1`; empty for an empty statement. */
  tags: string[]
  /** Whether the session was already reset after the transaction. */
  isReset: boolean
}

/** Runs statements with the extended protocol, in one round trip. */
export function runTextQueries(session: Session, work: Work): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    session.client.query(new TextQueries(session, work, { resolve, reject }))
  })
}

interface Settle {
  resolve(outcome: Outcome): void
  reject(error: Error): void
}

/** Results up to this size are received without taking memory of the budget. */
const SMALL_BYTES = 128 * 1024
/** Memory per byte of a result: its JSON may be twice as large as what Postgres sent. */
export const MEMORY_FACTOR = 2

// The driver pipelines only its own Query class, so this class extends it; the driver calls its methods for each message.
class TextQueries extends pg.Query implements RowSink {
  private readonly session: Session
  private readonly work: Work
  private readonly settle: Settle
  private readonly plans: Plan[] = []
  private readonly newTexts: string[] = []
  private readonly tags: string[] = []
  private readonly reply: Reply
  private bytes = 0
  private isReserved = false
  private isSettled = false

  constructor(session: Session, work: Work, settle: Settle) {
    super('')
    this.session = session
    this.work = work
    this.settle = settle
    this.reply = new Reply(work.format)
  }

  override submit = (connection: unknown) => {
    const wire = connection as Wire
    const { statements, begin } = this.work
    this.session.sink = this
    wire.stream.cork()
    if (begin) this.send(wire, begin)
    for (const { query, params } of statements) this.send(wire, query, params)
    if (begin) for (const query of ['COMMIT', ...this.session.reset]) this.send(wire, query)
    wire.sync()
    wire.stream.uncork()
  }

  private send(wire: Wire, text: string, params: readonly unknown[] = []) {
    const known = this.session.plans?.get(text)
    const plan = known ?? this.newPlan(text)
    if (!known) {
      // A failed transaction or a removed text may have left a statement of that name.
      wire.close({ type: 'S', name: plan.name })
      wire.parse({ name: plan.name, text })
    }
    wire.bind({ statement: plan.name, values: params.map(parameterText) })
    if (!known) wire.describe({ type: 'P' })
    wire.execute()
    this.plans.push(plan)
  }

  private newPlan(text: string): Plan {
    const plan = this.session.plans?.add(text)
    if (!plan) return { name: '', columns: NO_COLUMNS }
    this.newTexts.push(text)
    return plan
  }

  /** Waits for the memory budget without reading the socket, which makes Postgres wait too. */
  receive(bytes: number) {
    this.bytes += bytes
    const { bytesMax, account } = this.work
    if (this.bytes > bytesMax) return this.fail(tooLarge(bytesMax))
    if (this.bytes <= SMALL_BYTES || this.isReserved) return
    this.isReserved = true
    const { session } = this
    session.isPaused = true
    session.socket.pause()
    account.reserve(bytesMax * MEMORY_FACTOR).then(
      () => {
        session.isPaused = false
        session.socket.resume()
      },
      (error) => this.fail(error),
    )
  }

  private fail(error: Error) {
    if (this.isSettled) return
    this.handleError(error)
    this.session.abort()
  }

  private columns(): string {
    return this.plans[this.tags.length]?.columns ?? NO_COLUMNS
  }

  handleRowDescription({ fields }: { fields: Field[] }) {
    const plan = this.plans[this.tags.length]
    if (plan) plan.columns = columnsJson(fields)
  }

  row(values: (string | null)[]) {
    if (this.isInReply()) this.reply.row(this.columns(), values)
    this.checkSize()
  }

  beginRow() {
    if (this.isInReply()) this.reply.beginRow(this.columns())
  }

  beginValue(index: number, isNull: boolean) {
    if (this.isInReply()) this.reply.beginValue(index, isNull)
  }

  part(part: JsonPiece) {
    if (this.isInReply()) this.reply.part(part)
    this.checkSize()
  }

  endValue() {
    if (this.isInReply()) this.reply.endValue()
  }

  endRow() {
    if (this.isInReply()) this.reply.endRow()
  }

  private checkSize() {
    if (this.reply.isTooLarge) this.fail(tooLarge(this.work.bytesMax))
  }

  /** Ignores rows after a failure. */
  handleDataRow() {}

  handleCommandComplete({ text }: { text: string }) {
    if (this.isInReply()) this.reply.complete(this.columns(), text)
    this.tags.push(text)
  }

  /** Whether the current result belongs to the reply; those of BEGIN, COMMIT and reset statements do not. */
  private isInReply(): boolean {
    const { begin, statements } = this.work
    const first = begin ? 1 : 0
    return this.tags.length >= first && this.tags.length < first + statements.length
  }

  handleEmptyQuery() {
    this.handleCommandComplete({ text: '' })
  }

  handleError(error: Error) {
    // A commit remains valid even if the connection fails afterwards.
    if (this.isCommitted()) return this.resolve({ isReset: false })
    for (const text of this.newTexts) this.session.plans?.remove(text)
    this.end()
    this.settle.reject(error)
  }

  handleReadyForQuery() {
    this.resolve({ isReset: this.isCommitted() })
  }

  private isCommitted(): boolean {
    return this.work.begin !== undefined && this.tags.length >= this.work.statements.length + 2
  }

  /** Detaches from the session, which is then free for the next request. */
  private end() {
    this.isSettled = true
    this.session.sink = undefined
    this.session.isPaused = false
    if (this.isReserved) this.session.socket.resume()
  }

  private resolve({ isReset }: { isReset: boolean }) {
    const { begin, statements } = this.work
    const first = begin ? 1 : 0
    this.end()
    this.reply.finish()
    this.settle.resolve({ reply: this.reply, tags: this.tags.slice(first, first + statements.length), isReset })
  }
}

function tooLarge(bytesMax: number): Refusal {
  return new Refusal('54000', `the result is larger than ${bytesMax} bytes`)
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
