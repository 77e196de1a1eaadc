import { statementFailure } from './failure.ts'
import type { JsonPiece } from './json-bytes.ts'
import { rowWriter } from './json-rows.ts'
import type { Session, Wire } from './session.ts'

interface Statement {
  text: string
  /** Present = the extended protocol, which takes exactly one statement. */
  values?: readonly (string | null)[]
  /** Characters of the whole query in front of this statement. */
  positionOffset?: number
}

export interface Outcome {
  /** The text of a JSON array, in pieces. */
  json: JsonPiece[]
  /** The server's command tag, for example `INSERT 0 1`; empty for an empty statement. */
  tag: string
}

/** One exchange with the server; of several statements only the rows of the last are kept. */
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
      handleCopyInResponse: (wire) => wire.sendCopyFail('there is no data to read here'),
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
