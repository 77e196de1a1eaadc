import { types } from '@neondatabase/serverless'
import { BoundedMap } from '../platform/bounded-map.ts'
import { countQuery } from '../platform/db/client.ts'
import { type SqlOverHttp, sqlOverHttp } from '../platform/db/control-database.ts'
import { type DatabaseError, isDatabaseError, statementFailure } from './database-errors.ts'
import type { BatchRequest, Row, Statement } from './engine.ts'
import { EngineUnavailable, StatementsTooLarge } from './engine-errors.ts'
import { JSON_BYTES, readSeparately, SEPARATE_VALUE } from './separate-value.ts'
import { type Cluster, userOf } from './session.ts'
import { parameterText } from './value-encoders.ts'

const CLIENTS_MAX = 1_000
const clients = new BoundedMap<string, SqlOverHttp>(CLIENTS_MAX)

/**
 * Runs the statements as the role of one of the project's services, in one transaction and one HTTP round trip. Returns the rows of
 * each.
 */
export async function runBatch(cluster: Cluster, request: BatchRequest): Promise<Row[][]> {
  const { statements, service = 'storage', isolation, separate } = request
  const send = clientOf(cluster, cluster.names[service], request)
  countQuery('project_queries')
  try {
    const body = JSON.stringify({ queries: statements.map(queryOf) })
    const response = await send(body, {
      ...(isolation && { 'neon-batch-isolation-level': isolation }),
      ...(separate && { [SEPARATE_VALUE]: `${separate.statement}.${separate.column}` }),
    })
    if (!response.ok) throw await errorOf(response)
    return await rowsIn(response, separate)
  } catch (error) {
    throw batchFailure(error)
  }
}

function clientOf(cluster: Cluster, role: string, request: BatchRequest): SqlOverHttp {
  const { runnerPassword: password, sessionKey } = request
  const { database } = cluster.names
  const user = userOf(cluster, role)
  const name = [user, password, cluster.adminUrl, sessionKey].join(' ')
  const cached = clients.get(name)
  if (cached) return cached
  const { adminUrl, proxy, egress, key } = cluster
  const url = new URL(adminUrl)
  url.username = user
  url.password = key === undefined ? password : ''
  url.pathname = `/${database}`
  // Hosts share sessions by their options. Neon's proxy shares none.
  if (key !== undefined && sessionKey) url.searchParams.set('options', `-c pilothouse.session=${sessionKey}`)
  const client = sqlOverHttp({ url: url.href, proxy, egress, key })
  clients.set(name, client)
  return client
}

async function rowsIn(response: Response, separate: BatchRequest['separate']): Promise<Row[][]> {
  const jsonBytes = response.headers.get(JSON_BYTES)
  if (!separate || jsonBytes === null) {
    const { results } = await response.json<{ results: Result[] }>()
    return results.map(rowsOf)
  }
  const [json, value] = await readSeparately(response, Number(jsonBytes))
  const { results } = JSON.parse(json) as { results: Result[] }
  const rows = results.map(rowsOf)
  const row = rows[separate.statement]?.[0]
  const field = results[separate.statement]?.fields[separate.column]
  if (row && field) row[field.name] = value
  return rows
}

const queryOf = ({ text, params }: Statement) => ({ query: text, params: params.map(parameterText) })

interface Result {
  fields: readonly { name: string; dataTypeID: number }[]
  rows: readonly (readonly (string | null)[])[]
}

function rowsOf({ fields, rows }: Result): Row[] {
  const columns = fields.map(({ name, dataTypeID }) => ({ name, parse: types.getTypeParser(dataTypeID) }))
  return rows.map((texts) => {
    const row: Row = {}
    columns.forEach(({ name, parse }, n) => {
      const text = texts[n] ?? null
      row[name] = text === null ? null : parse(text)
    })
    return row
  })
}

/** The proxy reports a refused statement as status 400 with the fields of Postgres's error. */
async function errorOf(response: Response): Promise<Error> {
  if (response.status === 413) return new StatementsTooLarge('The statements are larger than the proxy takes')
  if (response.status !== 400) return new Error(`The database's proxy answered ${response.status}`)
  const { message, ...fields } = await response.json<Record<string, unknown>>()
  return Object.assign(
    new Error(String(message)),
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)),
  )
}

/** SQLSTATEs of failed connections: unknown or closed role or database, no connection left. */
const NO_SESSION = /^(08|28|3D|53300|55000)/

/**
 * Whether Postgres refused a statement, which may have an SQLSTATE of a failed connection too. A refused login has the severity FATAL,
 * and the refusal of a proxy names no routine of Postgres.
 */
const isStatementError = ({ severity, routine }: DatabaseError) => severity === 'ERROR' && routine !== undefined

function batchFailure(error: unknown): Error {
  if (error instanceof StatementsTooLarge) return error
  if (isDatabaseError(error) && NO_SESSION.test(error.code) && !isStatementError(error)) {
    return new EngineUnavailable(error.message, { code: error.code, cause: error })
  }
  return statementFailure(error, 0)
}
