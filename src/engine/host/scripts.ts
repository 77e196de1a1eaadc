import { EngineUnavailable, type SqlRequest, type SqlResult } from '../engine.ts'
import { parameterText } from '../value-encoders.ts'
import type { HostAddress } from './directory.ts'
import { readScriptFailure } from './script-failure.ts'

/** The host answers late enough to say itself that a script took too long. */
const ANSWER_MS = 30_000

/** The host runs the script: it has sessions open, and what they send goes on to the caller as it comes. */
export async function runSqlAt(
  { url, key }: HostAddress,
  egress: Fetcher | undefined,
  { ref, query, parameters, readOnly, timeoutMs }: SqlRequest,
): Promise<SqlResult> {
  const script = {
    instance: ref,
    query,
    read_only: readOnly,
    ...(parameters && { parameters: parameters.map(parameterText) }),
    ...(timeoutMs !== undefined && { timeout_ms: timeoutMs }),
  }
  const init = {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(script),
    ...(timeoutMs !== undefined && { signal: AbortSignal.timeout(timeoutMs + ANSWER_MS) }),
  }
  const response = await (egress ?? globalThis).fetch(`${url}/script`, init).catch((error) => {
    throw new EngineUnavailable('the database host does not answer', { cause: error })
  })
  if (response.ok && response.body) return response.body
  throw readScriptFailure(await response.json().catch(() => undefined))
}
