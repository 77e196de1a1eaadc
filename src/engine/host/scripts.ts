import type { SqlRequest, SqlResult } from '../engine.ts'
import { EngineUnavailable } from '../engine-errors.ts'
import { parameterText } from '../value-encoders.ts'
import type { HostAddress } from './directory.ts'
import { readScriptFailure } from './script-failure.ts'

/** Added to the script's timeout, so that the host reports a timeout before the request ends. */
const ANSWER_MARGIN_MS = 30_000

/** Runs SQL on the host, which keeps sessions open, and streams the result to the caller. */
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
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-instance': ref },
    body: JSON.stringify(script),
    ...(timeoutMs !== undefined && { signal: AbortSignal.timeout(timeoutMs + ANSWER_MARGIN_MS) }),
  }
  const response = await (egress ?? globalThis).fetch(`${url}/script`, init).catch((error) => {
    throw new EngineUnavailable('the database host does not answer', { cause: error })
  })
  if (response.ok && response.body) return response.body
  throw readScriptFailure(await response.json().catch(() => undefined))
}
