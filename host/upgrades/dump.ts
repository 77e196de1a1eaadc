import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
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

/** Statements about one object, without comments. The other members come from the comment before them; the first entry has none. */
export interface DumpEntry {
  type: string
  /** Schema of the object; `-` if it has none. */
  schema: string
  /** Owner of the object, or of the table that it belongs to; `-` if it has none. */
  owner: string
  statements: string[]
}

export interface SchemaDump {
  /** Statements for another database, which create this one and set its properties. */
  database: string[]
  entries: DumpEntry[]
}

/** Dumps the schema of a database with pg_dump. */
export async function dumpSchema({ socket, database, snapshot, section }: DumpRequest): Promise<SchemaDump> {
  const name = database.replaceAll(/['\\]/g, '\\$&')
  const target = `user=${SUPERUSER} dbname='${name}'`
  const key = randomBytes(16).toString('hex')
  const create = section === 'pre-data' ? ['--create'] : []
  const output = await runPgDump(socket, [
    ...[...create, `--section=${section}`, `--snapshot=${snapshot}`, `--dbname=${target}`],
    ...[`--restrict-key=${key}`, '--encoding=UTF8'],
  ])
  const parts = withoutCommands(output, key).map(entriesIn)
  return {
    database: parts
      .slice(0, -1)
      .flat()
      .flatMap(({ statements }) => statements),
    entries: parts.at(-1) ?? [],
  }
}

/** Runs pg_dump on the server whose socket is in a folder, and returns its output. */
export async function runPgDump(folder: string, args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] })
  const pipe = child.stdio[3]
  if (!(pipe instanceof Duplex) || !child.stdout || !child.stderr) throw new TypeError('pg_dump has no pipes')
  const server = connect(join(folder, '.s.PGSQL.5432'))
  // A failed connection ends the program, and its exit code then reports the failure.
  for (const end of [pipe, server]) end.on('error', () => child.kill())
  pipe.pipe(server).pipe(pipe)
  try {
    const ended = new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve))
    const [output, errors, code] = await Promise.all([text(child.stdout), text(child.stderr), ended])
    if (code !== 0) throw new Error(`The schema cannot be read: ${reasonIn(errors)}`)
    return output
  } finally {
    server.destroy()
  }
}

/**
 * Removes the commands of psql, and splits the dump where it connects to another database. They contain a random key, so no name and
 * no literal can contain them.
 */
function withoutCommands(output: string, key: string): string[] {
  const whole = new RegExp(
    `^--\n-- PostgreSQL database dump\n--\n\n\\\\restrict ${key}\n(.*)\\\\unrestrict ${key}\n+$`,
    's',
  )
  const [, content] = whole.exec(output) ?? []
  if (content === undefined) throw new Error('The schema cannot be read: the dump is incomplete')
  return content.split(new RegExp(`^\\\\unrestrict ${key}\n.*?\\\\restrict ${key}\n`, 'ms'))
}

/** The comment in front of an entry. Only the name, which comes first, may contain what resembles the other fields. */
const HEADER = /^-- Name: .*; Type: ([A-Z ]+); Schema: (.*); Owner: (.*)$/s
/** A query for names of schemas and roles that would make the comments ambiguous. */
export const AMBIGUOUS_NAMES = `SELECT name FROM (SELECT nspname AS name FROM pg_namespace UNION ALL SELECT rolname FROM pg_roles) AS n
  WHERE name ~ ';\\s' ORDER BY name`

function entriesIn(part: string): DumpEntry[] {
  const entries: DumpEntry[] = []
  for (const { text: statement } of splitStatements(part)) {
    const start = endOfComments(statement)
    // Names contain no newline here, but may contain other characters that end a line in a regular expression.
    const header = statement
      .slice(0, start)
      .split('\n')
      .findLast((line) => /^-- (\w+ for )?Name: /.test(line))
    const fields = header === undefined ? [] : HEADER.exec(header)
    if (!fields) throw new Error(`The schema cannot be read: ${header}`)
    const [, type = '', schema = '-', owner = '-'] = fields
    if (header || entries.length === 0) entries.push({ type, schema, owner, statements: [] })
    entries.at(-1)?.statements.push(statement.slice(start))
  }
  return entries
}

/** The end of the comments in front of a statement. Others show that the statement has not been split correctly. */
function endOfComments(statement: string): number {
  let start = 0
  while (start < statement.length && isBlank(statement, start)) start = endOfToken(statement, start)
  for (let at = start; at < statement.length; at = endOfToken(statement, at)) {
    const isComment = statement.startsWith('--', at) || statement.startsWith('/*', at)
    if (isComment) throw new Error('The schema cannot be read: a statement contains a comment')
  }
  return start
}

const reasonIn = (errors: string): string => /(?:error|detail): (.+)/.exec(errors)?.[1] ?? 'pg_dump failed'
