import { type NeonQueryFunction, neon } from '@neondatabase/serverless'
import { countQuery } from '../db/client.ts'
import { route } from '../db/proxy.ts'
import { type BatchRequest, EngineUnavailable, type Row } from './engine.ts'
import { isDatabaseError, statementFailure } from './failure.ts'
import { projectNames } from './names.ts'
import type { Cluster } from './session.ts'

type Send = NeonQueryFunction<false, false>

const KEPT_MAX = 1_000
const senders = new Map<string, Send>()

/** Runs the statements as the project's storage role: one transaction, one HTTP round trip. Returns the rows of each. */
export async function runBatch(cluster: Cluster, { ref, runnerPassword, statements }: BatchRequest): Promise<Row[][]> {
  const send = senderOf(cluster, ref, runnerPassword)
  countQuery()
  const queries = statements.map(({ text, params }) => send.query(text, [...params]))
  try {
    const [only] = queries
    return only && queries.length === 1 ? [await only] : await send.transaction(queries)
  } catch (error) {
    throw batchFailure(error)
  }
}

function senderOf(cluster: Cluster, ref: string, password: string): Send {
  const { storage, database } = projectNames(ref)
  const url = new URL(cluster.adminUrl)
  url.username = storage
  url.password = password
  url.pathname = `/${database}`
  const known = senders.get(url.href)
  if (known) return known
  if (senders.size >= KEPT_MAX) senders.clear()
  route({ url: url.href, proxy: cluster.proxy, egress: cluster.egress })
  const send = neon(url.href)
  senders.set(url.href, send)
  return send
}

/** Of no session: unknown or closed role or database, no connection left. */
const NO_SESSION = /^(08|28|3D|53300|55000)/

function batchFailure(error: unknown): Error {
  if (isDatabaseError(error) && NO_SESSION.test(error.code)) {
    return new EngineUnavailable(error.message, { code: error.code, cause: error })
  }
  return statementFailure(error, 0)
}
