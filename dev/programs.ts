import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { proofOf, type Question, TOLD_HEADER, type Told } from '../src/programs/protocol.ts'
import { tickEveryMinute } from './cron.ts'
import { childAt, LOOKED_AT_MS, memoryMiBMax, residentMiB } from './memory.ts'
import { freePort } from './ports.ts'
import { type Program, type Running, run } from './supervised.ts'

const ENTRYPOINT = 'ProgramsHost'
/** How either process reaches the other. */
export const TELLING = { cfBlobHeader: TOLD_HEADER }
/** A machine that stood still for a while itself finds it alive after all. */
const LAST_SECONDS = 1
const RETRIED_MS = 1_000

interface Options extends Program {
  /** Host and port of the API. */
  api: string
  /** Without an answer for so long, a program holds up all others; on Cloudflare a call has 2 s of CPU time. */
  silentSeconds?: number | undefined
  /** What the process may have in memory, on Linux. */
  memoryMiB?: number | undefined
  /** Of this machine, that programs must not reach, beside that of their own process. */
  closedPorts?: readonly number[]
}

export interface Programs {
  address: string
  key: string
  stop(): Promise<void>
}

/**
 * The process that runs what users deploy. A program that loops without end, or takes all memory, ends this process and nothing else: the
 * API and storage go on, and it is started again at the same address.
 */
export async function startPrograms({
  worker,
  api,
  onLine,
  silentSeconds = 5,
  memoryMiB = memoryMiBMax(),
  closedPorts = [],
}: Options): Promise<Programs> {
  const key = randomBytes(24).toString('hex')
  const port = await freePort(0, 'api')
  const program = {
    worker: workerOf(worker, { api, key, ports: [...closedPorts, port] }),
    onLine: (line: string) => isNews(line) && onLine(line),
  }
  const begin = () => run(program, { port, entrypoint: ENTRYPOINT })
  const ended = new AbortController()
  let running: Running | undefined = await begin()
  let pid = await childAt(port)

  async function ask(question: Question, seconds: number): Promise<string> {
    const headers = { [TOLD_HEADER]: JSON.stringify({ key, question } satisfies Told) }
    const signal = AbortSignal.timeout(seconds * 1_000)
    const asked = fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body: '{}', signal })
    return asked.then((response) => (response.ok ? response.text() : '')).catch(() => '')
  }

  const proof = await proofOf(key)
  const isAlive = async (seconds: number) => (await ask('alive', seconds)).includes(proof)

  async function watch(): Promise<void> {
    while (!ended.signal.aborted) {
      await delay(LOOKED_AT_MS, undefined, { signal: ended.signal }).catch(() => {})
      const isLarge = pid !== undefined && (await residentMiB(pid)) > memoryMiB
      if (isLarge) onLine(line('programs_too_large', { memory_mib_max: memoryMiB }))
      else if ((await isAlive(silentSeconds)) || (await isAlive(LAST_SECONDS))) continue
      if (!ended.signal.aborted) await restart()
    }
  }

  async function restart(): Promise<void> {
    const startedAt = performance.now()
    await stopRunning()
    running = await begin().catch((error) => {
      onLine(line('programs_not_started', { error: String(error) }))
      return undefined
    })
    pid = await childAt(port)
    if (!running) return void (await delay(RETRIED_MS, undefined, { signal: ended.signal }).catch(() => {}))
    onLine(line('programs_started_again', { ms: Math.round(performance.now() - startedAt) }))
  }

  const stopRunning = async () => running?.stop().catch(() => {})

  const watching = watch()
  const cron = tickEveryMinute(() => ask('end-idle', silentSeconds))
  return {
    address: `127.0.0.1:${port}`,
    key,
    async stop() {
      cron.stop()
      ended.abort()
      await watching
      await stopRunning()
    },
  }
}

function workerOf(worker: Record<string, unknown>, { api, key, ports }: { api: string; key: string; ports: number[] }) {
  const { bindings, serviceBindings } = worker as Record<'bindings' | 'serviceBindings', Record<string, unknown>>
  return {
    ...worker,
    // Its queues are the API's.
    queueProducers: undefined,
    queueConsumers: undefined,
    bindings: { ...bindings, PROGRAMS_KEY: key, CLOSED_PORTS: ports.join(',') },
    serviceBindings: { ...serviceBindings, API: { external: { address: api, http: TELLING } } },
  }
}

/** What the runtime says of each program that is ended because nobody calls it any more. */
const ISOLATE_ENDED = 'script terminated for unknown reasons'
export const isNews = (line: string): boolean => !line.includes(ISOLATE_ENDED)

const line = (event: string, fields: Record<string, unknown>): string =>
  JSON.stringify({ level: 'error', event, ...fields })
