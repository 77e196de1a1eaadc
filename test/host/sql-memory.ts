import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { request } from 'node:http'
import { ROWS_OF_TEXT } from './call-host.ts'
import { KEY, startSqlHost } from './sql-host.ts'

/**
 * Measures a host's memory with three processes, so that the clients' memory is not counted: this one sends requests,
 * and the one that it starts is the host. Reports the largest growth and the length of the results to its parent.
 */
const NAMES = ['aaaaaaaaaaaaaaaaaaaa', 'bbbbbbbbbbbbbbbbbbbb', 'cccccccccccccccccccc']
const LONG_VALUE = `select repeat('z', 15000000)`
const REQUESTS = [
  { path: '/sql', query: LONG_VALUE },
  { path: '/sql', query: `select repeat('z', 1000) from generate_series(1, 15000)` },
  { path: '/script', query: LONG_VALUE },
  { path: '/script', query: `select repeat('z', 100) from generate_series(1, 140000)` },
] as const

async function serve() {
  // A busy machine may need minutes for all results: the bound of memory is tested here, and not that of time.
  const limits = { waitMs: 240_000, budgetWaitMs: 240_000, sendTimeoutMs: 240_000 }
  const host = await startSqlHost(NAMES, { limits })
  process.on('disconnect', () => void host.stop().then(() => process.exit(0)))
  process.send?.(host.url)
}

async function measure() {
  const child = fork(new URL(import.meta.url), ['serve'], { execArgv: [] })
  const [url] = (await once(child, 'message')) as [string]
  const memory = async (field: string) => {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8')
    return 1024 * Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)?.[1])
  }
  for (const name of NAMES) await lengthOf(url, name, { path: '/sql', query: 'select 1' })
  const before = await memory('VmRSS')
  const lengths = await Promise.all(
    Array.from({ length: 30 }, (_, i) => lengthOf(url, NAMES[i % 3] ?? '', REQUESTS[i % 4] ?? REQUESTS[0])),
  )
  process.send?.({ grownBytes: (await memory('VmHWM')) - before, lengths })
  child.disconnect()
  await once(child, 'exit')
}

/** Returns the length of a reply, which is not kept. */
async function lengthOf(url: string, name: string, { path, query }: { path: string; query: string }): Promise<number> {
  const headers = {
    'neon-connection-string': `postgresql://postgres.${name}@any.host/postgres`,
    ...ROWS_OF_TEXT,
    authorization: `Bearer ${KEY}`,
  }
  const req = request(url + path, { method: 'POST', headers })
  req.end(JSON.stringify(path === '/sql' ? { query } : { instance: name, query, read_only: false }))
  const [res] = await once(req, 'response')
  let length = 0
  for await (const chunk of res as AsyncIterable<Buffer>) length += chunk.length
  return length
}

await (process.argv[2] === 'serve' ? serve() : measure())
