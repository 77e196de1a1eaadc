import { statementFailure } from './database-errors.ts'
import type { JsonPiece } from './json-bytes.ts'
import { rowWriter } from './json-rows.ts'
import type { Session, Wire } from './session.ts'

interface Statement {
  text: string
  /** If present, the statement goes through the extended protocol, which accepts exactly one. */
  values?: readonly (string | null)[]
  /** Number of characters before this statement in the query. */
  positionOffset?: number
}

export interface Outcome {
  /** JSON text of the array of rows, in pieces. */
  json: JsonPiece[]
  /** The server's command tag, for example `INSERT 0 1`; empty for an empty statement. */
  tag: string
}

/** Runs a statement, or several at once, and returns the rows of the last one. */
export function runStatement(session: Session, statement: Statement, sizeBytesMax: number): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const rows = rowWriter(sizeBytesMax, reject)
    let described = false
    let tag = ''

    session.submit({
      submit: (wire) => send(wire, statement),
      handleRowDescription({ fields }) {
        described = true
        rows.describe(fields)
      },
      handleDataRow: ({ fields }) => rows.row(fields),
      rows,
      handleCommandComplete({ text }) {
        tag = text
        if (!described) rows.reset()
        described = false
      },
      handleEmptyQuery() {},
      handlePortalSuspended() {},
      handleCopyInResponse: (wire) => wire.sendCopyFail('not supported, insert the rows instead'),
      handleCopyData() {},
      handleError: (error) => reject(statementFailure(error, statement.positionOffset ?? 0)),
      handleReadyForQuery: () => resolve({ json: rows.result(), tag }),
    })
  })
}

function send(wire: Wire, { text, values }: Statement): void {
  if (values === undefined) {
    wire.query(text)
    return
  }
  wire.parse({ text })
  wire.bind({ values })
  wire.describe({ type: 'P' })
  wire.execute({ portal: '' })
  wire.sync()
}
