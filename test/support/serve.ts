import { join } from 'node:path'
import { inject } from 'vitest'
import { freePort } from '../../dev/ports.ts'
import { startWorker, type WorkerOptions } from '../../dev/worker.ts'
import { type Bindings, type Server, serveWorker } from './worker.ts'

/** Starts another Worker in a test, with the bundle that the run has made. */
export const serveInstallation = (bindings: Bindings, folder: string): Promise<Server> =>
  serveWorker(bindings, { bundle: inject('bundle'), folder: join(folder, 'worker') })

/** Starts a Worker as `npm start` does, with the same egress and its own cron. */
export async function serveLikeStart(
  { vars, secrets }: Bindings,
  folder: string,
  options: Pick<WorkerOptions, 'cpuSeconds' | 'memoryMiB' | 'onLine'> = {},
): Promise<Server> {
  const port = await freePort(0, 'api')
  const bindings = { ...vars, ...secrets }
  const bundle = inject('bundle')
  const { stop } = await startWorker({ bundle, port, bindings, folder: join(folder, 'worker'), ...options })
  return {
    origin: `http://127.0.0.1:${port}`,
    tick: () => Promise.reject(new Error('this Worker runs its own cron')),
    stop,
  }
}
