import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Machine } from '../machine.ts'
import { type Installation, until } from './installation.ts'

const START_MS_MAX = 240_000
const END_MS_MAX = 30_000

/** Starts `npm start` as a process group of its own, which can be killed without a chance to finish anything. */
export async function startKillable({ folder, env }: Machine) {
  const child = spawn('node', ['dev/start.ts'], { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  const collectOutput = (data: Buffer) => {
    output += data
  }
  child.stdout.on('data', collectOutput)
  child.stderr.on('data', collectOutput)
  const exited = once(child, 'exit')
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null
  const ready = until('npm start is ready', START_MS_MAX, () =>
    hasEnded() || output.includes('Pilothouse is ready') ? true : undefined,
  )

  return {
    pid: child.pid,
    /** Waits until it serves requests. */
    async ready(): Promise<void> {
      await ready
      if (hasEnded()) throw new Error(`it ended:\n${output}`)
    },
    /** Ends the runtime, its queues and objects in memory, and all Postgres servers, in the middle of their work. */
    async kill(): Promise<void> {
      if (hasEnded()) return
      // The daemon is killed first, because it would restart the servers.
      killGroup(child.pid ?? 0)
      await exited
      const servers = await postmastersIn(folder)
      for (const pid of servers) killGroup(pid)
      await until('all of it is gone', END_MS_MAX, () =>
        [-(child.pid ?? 0), ...servers].some(isAlive) ? undefined : true,
      )
    },
  }
}
export type Killable = Awaited<ReturnType<typeof startKillable>>

/**
 * Starts again on the same data as if that took longer: the leases of the dead processes, 30 s, have ended, and due
 * work is overdue for the first sweep, 5 s. No sender exists yet that could have claimed anything.
 */
export async function revive(machine: Machine, { rows }: Installation): Promise<Killable> {
  const revived = await startKillable(machine)
  await until('the database takes queries', START_MS_MAX, async () => {
    await rows(`update webhook_deliveries set lease_until = least(lease_until, now()), next_at = next_at - interval '5 seconds'
      where status = 'pending' and next_at <= now()`)
    return true
  })
  await revived.ready()
  return revived
}

/** Returns the postmasters in the folder; each leads a process group. */
async function postmastersIn(folder: string): Promise<number[]> {
  const instances = join(folder, 'host', 'instances')
  const names = await readdir(instances)
  const files = await Promise.all(
    names.map((name) => readFile(join(instances, name, 'data', 'postmaster.pid'), 'utf8').catch(() => '')),
  )
  return files.map((text) => Number(text.split('\n')[0])).filter((pid) => pid > 0)
}

function killGroup(leader: number): void {
  if (leader > 0 && isAlive(-leader)) process.kill(-leader, 'SIGKILL')
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
