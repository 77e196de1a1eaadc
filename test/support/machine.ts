import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, vi } from 'vitest'
import { readCommand } from '../../dev/admin/commands.ts'
import { freePort } from '../../dev/ports.ts'
import { openControlDatabase } from '../../dev/seed.ts'
import { targetDatabaseUrl } from '../../dev/target.ts'
import { copyInstallation } from './installations.ts'
import { WAIT_MS } from './wait.ts'

export const WAIT = { timeout: WAIT_MS, interval: 50 }

export interface Running {
  child: ChildProcess
  /** Everything that it has printed. */
  output(): string
  /** The lines of its standard output. */
  lines(): string[]
}

interface Credentials {
  base_url: string
  access_token: string
  organization_slug: string
}

/**
 * A machine of its own for `npm start`: a data folder, free ports and more settings, and what a user does with them.
 * It is a copy of the installation in the folder `begun`, if there is one, or a new one.
 */
export async function newMachine(
  settings: Record<string, string> = {},
  begun?: string,
  { isGroupLeader: detached = false } = {},
) {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-start-'))
  if (begun) copyInstallation(begun, folder)
  const ports = await Promise.all(Array.from({ length: 4 }, async () => String(await freePort(0, 'api'))))
  const [PORT, POSTGRES_PORT, PROXY_PORT, S3_PORT] = ports
  const { BASE_URL: _ofVitest, ...inherited } = process.env
  const own = { PORT, POSTGRES_PORT, PROXY_PORT, S3_PORT, ...settings, PILOTHOUSE_DATA: folder }
  const env = { ...inherited, ...own }
  const started: Running[] = []
  const credentials = (): Credentials => JSON.parse(readFileSync(join(folder, 'credentials.json'), 'utf8'))

  function start(...args: string[]): Running {
    const child = spawn('node', ['dev/start.ts', ...args], { env, detached, stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    let standard = ''
    child.stdout.on('data', (data: Buffer) => {
      text += data
      standard += data
    })
    child.stderr.on('data', (data: Buffer) => {
      text += data
    })
    const running = { child, output: () => text, lines: () => standard.split('\n').filter((line) => line !== '') }
    started.push(running)
    return running
  }

  const tick = () => void started.at(-1)?.child.kill('SIGUSR2')

  return {
    folder,
    env,
    credentials,
    start,
    /** Starts, and waits until it reports that it is ready. */
    async started(...args: string[]): Promise<Running> {
      const running = start(...args)
      await vi.waitFor(() => {
        if (running.child.exitCode !== null) throw new Error(`it ended:\n${running.output()}`)
        expect(running.output()).toContain('Pilothouse is ready')
      }, WAIT)
      return running
    },
    /** Returns the start that an earlier test left running, or starts. */
    async running(): Promise<Running> {
      return started.find((each) => !hasEnded(each)) ?? this.started()
    },
    /** Calls this start's API, and not that of the run's own Worker. */
    async get(path: string, token = credentials().access_token) {
      const headers = { authorization: `Bearer ${token}` }
      const response = await fetch(new URL(path, credentials().base_url), { headers })
      return { status: response.status, body: (await response.json()) as Record<string, unknown> }
    },
    /** Runs SQL on the first project of the list. */
    async sql(query: string) {
      const { base_url, access_token } = credentials()
      const [project] = (await this.get('/v1/projects')).body as unknown as { ref: string }[]
      const response = await fetch(new URL(`/v1/projects/${project?.ref}/database/query`, base_url), {
        method: 'POST',
        headers: { authorization: `Bearer ${access_token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ query }),
      })
      return { status: response.status, body: (await response.json()) as Record<string, unknown> }
    },
    async admin(...args: string[]): Promise<string> {
      return (await promisify(execFile)('node', ['dev/admin.ts', ...args], { env })).stdout.trim()
    },
    /** Runs a command of `npm run admin` without a process for it. Rejects like `admin` if its exit code is 1. */
    async command(...args: string[]): Promise<string> {
      for (const [name, value] of Object.entries(own)) vi.stubEnv(name, value)
      const { db, close } = openControlDatabase(await targetDatabaseUrl(env))
      try {
        const { text, exitCode } = await readCommand(args)(db)
        if (exitCode !== 0) throw Object.assign(new Error(text), { code: exitCode, stdout: text })
        return text
      } finally {
        vi.unstubAllEnvs()
        await close()
      }
    },
    /** Runs the cron at once, and then every two seconds until the work, which waits for it, has ended. */
    async whileTicking<T>(work: Promise<T>): Promise<T> {
      const timer = setInterval(tick, 2_000)
      tick()
      return work.finally(() => clearInterval(timer))
    },
    async stopAll(): Promise<void> {
      for (const running of started.splice(0)) await stop(running)
    },
    async dispose(): Promise<void> {
      await this.stopAll()
      // A program that a killed start has begun may write into the folder for some moments more.
      rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
    },
  }
}
export type Machine = Awaited<ReturnType<typeof newMachine>>

const hasEnded = ({ child }: Running) => child.exitCode !== null || child.signalCode !== null

export async function stop(running: Running, signal: NodeJS.Signals = 'SIGINT'): Promise<number | null> {
  const { child } = running
  if (hasEnded(running)) return child.exitCode
  child.kill(signal)
  await once(child, 'exit')
  return child.exitCode
}

/** Sends a signal to a group leader and all that it has started, as a terminal does. */
export async function stopGroup({ child }: Running, signal: NodeJS.Signals): Promise<number | null> {
  const exited = once(child, 'exit')
  process.kill(-(child.pid ?? 0), signal)
  await exited
  return child.exitCode
}
