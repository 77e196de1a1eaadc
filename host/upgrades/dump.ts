import { spawn } from 'node:child_process'
import { connect } from 'node:net'
import { join } from 'node:path'
import { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { endOfToken, isBlank, splitStatements } from '../../src/engine/split-statements.ts'
import { SUPERUSER } from '../template/roles.ts'

const PROGRAM = fileURLToPath(new URL('dump-program.ts', import.meta.url))

interface DumpRequest {
  /** The folder of the server's socket. */
  socket: string
  database: string
  snapshot: string
  section: 'pre-data' | 'post-data'
}

/** Dumps the schema of a database with pg_dump. Returns its statements without the comments in front of them. */
export async function dumpSchema({ socket, database, snapshot, section }: DumpRequest): Promise<string[]> {
  const name = database.replaceAll(/['\\]/g, '\\$&')
  const target = `user=${SUPERUSER} dbname='${name}'`
  const create = section === 'pre-data' ? ['--create'] : []
  const args = [...create, `--section=${section}`, `--snapshot=${snapshot}`, `--dbname=${target}`]
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
  const pipe = child.stdio[3]
  if (!(pipe instanceof Duplex) || !child.stdout || !child.stderr) throw new TypeError('pg_dump has no pipes')
  const server = connect(join(socket, '.s.PGSQL.5432'))
  // A failed connection ends the program, and its exit code then reports the failure.
  for (const end of [pipe, server]) end.on('error', () => child.kill())
  pipe.pipe(server).pipe(pipe)
  try {
    const ended = new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve))
    const [output, errors, code] = await Promise.all([text(child.stdout), text(child.stderr), ended])
    if (code !== 0) throw new Error(`The schema cannot be read: ${reasonIn(errors)}`)
    return splitStatements(output).map((statement) => withoutComments(statement.text))
  } finally {
    server.destroy()
  }
}

function withoutComments(statement: string): string {
  let start = 0
  while (start < statement.length && isBlank(statement, start)) start = endOfToken(statement, start)
  return statement.slice(start)
}

const reasonIn = (errors: string): string => /(?:error|detail): (.+)/.exec(errors)?.[1] ?? 'pg_dump failed'
