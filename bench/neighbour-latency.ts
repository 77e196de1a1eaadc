import { setTimeout as delay } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import pg from 'pg'
import { percentile } from './measure.ts'

const MEASURED_MS = 10_000
const STATEMENT = 'select sum(n) from generate_series(1, 20000) n'

/** Measures the latency of a statement, in a thread of its own so that the attacks of the benchmark do not delay it. */
const client = new pg.Client({ connectionString: workerData.url })
await client.connect()
parentPort?.on('message', async () => {
  const ms: number[] = []
  for (const until = performance.now() + MEASURED_MS; performance.now() < until; await delay(2)) {
    const startedAt = performance.now()
    await client.query(STATEMENT)
    ms.push(performance.now() - startedAt)
  }
  parentPort?.postMessage(percentile(ms, 0.99))
})
