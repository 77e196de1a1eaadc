import { type EngineHealth, EngineUnavailable } from './engine.ts'
import { type Cluster, withAdmin } from './session.ts'

/** What cannot be told in time is not healthy. */
export async function healthWithin(timeoutMs: number, state: Promise<EngineHealth>): Promise<EngineHealth> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<EngineHealth>((resolve) => {
    timer = setTimeout(() => resolve({ healthy: false, error: `no answer in ${timeoutMs} ms` }), timeoutMs)
  })
  try {
    return await Promise.race([state, tooLate])
  } catch (error) {
    if (!(error instanceof EngineUnavailable)) throw error
    return { healthy: false, error: error.message }
  } finally {
    clearTimeout(timer)
  }
}

/** Such as 18.4. */
export async function serverVersion(cluster: Cluster): Promise<string> {
  const [row] = await withAdmin(cluster, (admin) => admin.rows<{ server_version: string }>('SHOW server_version'))
  return row?.server_version.split(' ')[0] ?? 'unknown'
}
