import { statementFailure } from './database-errors.ts'
import type { Transaction, TransactionRequest } from './engine.ts'
import { SqlError } from './engine-errors.ts'
import { RESULT_SIZE_BYTES_MAX, withProjectSession } from './run-sql.ts'
import { runStatement } from './run-statement.ts'
import type { Session, SessionSource, Wire } from './session.ts'
import { endOfToken, isBlank, type SplitStatement } from './split-statements.ts'
import { parameterText } from './value-encoders.ts'

/** Number of statements sent before waiting for the first answer. */
const PIPELINE_MAX = 500

export function runTransaction<Value>(
  source: SessionSource,
  request: TransactionRequest,
  work: (tx: Transaction) => Promise<Value>,
): Promise<Value> {
  return withProjectSession(source, { ...request, readOnly: false }, async (session) => {
    await runStatement(session, { text: 'BEGIN' }, RESULT_SIZE_BYTES_MAX)
    const value = await work(transactionOn(session))
    await runStatement(session, { text: 'COMMIT' }, RESULT_SIZE_BYTES_MAX)
    return value
  })
}

const transactionOn = (session: Session): Transaction => ({
  async rows<Found extends object>(text: string, params: readonly unknown[] = []) {
    const values = params.map(parameterText)
    return JSON.parse((await runStatement(session, { text, values }, RESULT_SIZE_BYTES_MAX)).json.join('')) as Found[]
  },
  async run(statements) {
    for (const statement of statements) refuseTransactionControl(statement)
    for (let from = 0; from < statements.length; from += PIPELINE_MAX) {
      await runPipeline(session, statements.slice(from, from + PIPELINE_MAX))
    }
    await runStatement(session, { text: RESET }, RESULT_SIZE_BYTES_MAX)
  },
})

const RESET = 'RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL'

/**
 * Statements that end a transaction, by their first words. Checking these is enough: the extended protocol accepts one
 * statement per message, and procedures and blocks cannot commit a transaction that they did not begin.
 */
const ENDS_TRANSACTION = /^(BEGIN|START|COMMIT|END|ROLLBACK(?!( WORK| TRANSACTION)? TO\b)|ABORT|PREPARE TRANSACTION)\b/

function refuseTransactionControl({ text, characterOffset }: SplitStatement): void {
  const words = firstWords(text)
  if (!ENDS_TRANSACTION.test(words)) return
  throw new SqlError({
    code: '25001',
    message:
      'Transaction control is not allowed: remove BEGIN, COMMIT and ROLLBACK, the statements run in one transaction',
    position: characterOffset + 1,
    statement: text,
  })
}

function firstWords(text: string): string {
  const words: string[] = []
  for (let at = 0; at < text.length && words.length < 3; ) {
    const end = endOfToken(text, at)
    if (!isBlank(text, at)) words.push(text.slice(at, end).toUpperCase())
    at = end
  }
  return words.join(' ')
}

/** Sends all statements at once; the server runs them in order and stops at the first that fails. */
function runPipeline(session: Session, statements: readonly SplitStatement[]): Promise<void> {
  return new Promise((resolve, reject) => {
    let done = 0
    const next = () => {
      done += 1
    }
    session.submit({
      submit: (wire) => sendAll(wire, statements),
      handleRowDescription() {},
      handleDataRow() {},
      handleCommandComplete: next,
      handleEmptyQuery: next,
      handlePortalSuspended() {},
      handleCopyInResponse(wire) {
        wire.sendCopyFail('not supported, insert the rows instead')
        // The server ignores the first Sync message while it waits for COPY data.
        wire.sync()
      },
      handleCopyData() {},
      handleError: (error) => reject(failureOf(error, statements[done])),
      handleReadyForQuery: () => resolve(),
    })
  })
}

function sendAll(wire: Wire, statements: readonly SplitStatement[]): void {
  for (const { text } of statements) {
    wire.parse({ text })
    wire.bind({ values: [] })
    wire.execute({ portal: '' })
  }
  wire.sync()
}

function failureOf(error: unknown, statement: SplitStatement | undefined): Error {
  const failure = statementFailure(error, statement?.characterOffset ?? 0)
  return failure instanceof SqlError
    ? new SqlError({ ...failure, message: failure.message, statement: statement?.text })
    : failure
}
