import { withTimeout } from '../platform/timeout.ts'
import type { EngineHealth } from './engine.ts'
import { EngineUnavailable } from './engine-errors.ts'
import { type Server, withAdmin } from './session.ts'

/** Waits for the state of a project; reports it as unhealthy if there is no answer in time. */
export async function healthWithTimeout(timeoutMs: number, state: Promise<EngineHealth>): Promise<EngineHealth> {
  try {
    return await withTimeout(timeoutMs, state, () => new EngineUnavailable(`no answer in ${timeoutMs} ms`))
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error
    return { healthy: false, error: error.message }
  }
}

/** The server's version, such as `18.4`. */
export async function serverVersion(cluster: Server): Promise<string> {
  const [row] = await withAdmin(cluster, (admin) => admin.rows<{ server_version: string }>('SHOW server_version'))
  return row?.server_version.split(' ')[0] ?? 'unknown'
}
