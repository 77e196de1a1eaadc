import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Services } from '../../dev/services.ts'

type Started = Pick<Services, 'vars' | 'secrets' | 'controlUrl' | 'stop'> & {
  /** Address of the control plane's instance: its superuser, over its socket. */
  adminUrl: string
  host: { url: string; run: string }
}

const PROGRAM = fileURLToPath(new URL('services-process.ts', import.meta.url))

/**
 * Starts the services of a folder in a process of their own. To start a program, Linux copies the page tables of the process that
 * starts it, and the host starts several for each instance: from the large process of vitest, each costs ten times as much.
 */
export async function startServicesApart(folder: string, baseUrl: string): Promise<Started> {
  const child = fork(PROGRAM, [folder, baseUrl])
  const exited = once(child, 'exit')
  const started = await Promise.race([once(child, 'message'), exited.then(() => undefined)])
  if (!started) throw new Error('The services did not start')
  const stop = async () => {
    child.disconnect()
    await exited
  }
  return { ...(started[0] as Omit<Started, 'stop'>), stop }
}
