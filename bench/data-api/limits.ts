import { readFile, writeFile } from 'node:fs/promises'
import type pg from 'pg'
import type { Report } from '../report.ts'

const MIB = 1024 * 1024
const REPLIES = 4
const TABLES = 5_000
/** Number of tables that one transaction creates: it can lock only a limited number. */
const TABLES_AT_ONCE = 500
const LOAD_SECONDS_MAX = 2

/** Reports the peak memory of the Worker while it sends large replies. Only Linux records it. */
export async function peakMemory(
  { pid, url, headers }: { pid: number; url: string; headers: Record<string, string> },
  report: Report,
): Promise<void> {
  report.title(`memory of workerd during ${REPLIES} replies at once, MiB`)
  for (const [name, path] of Object.entries({ '10,000 rows': '/books?select=*', '15 MB': '/rpc/large' })) {
    // Resets the recorded peak to the present value.
    await writeFile(`/proc/${pid}/clear_refs`, '5')
    const before = await peakOf(pid)
    const startedAt = performance.now()
    const bytes = await Promise.all(
      Array.from({ length: REPLIES }, async () => {
        const reply = await fetch(url + path, { headers })
        if (!reply.ok) throw new Error(`answered ${reply.status}: ${await reply.text()}`)
        let size = 0
        for await (const chunk of reply.body ?? []) size += chunk.byteLength
        return size
      }),
    )
    const seconds = (performance.now() - startedAt) / 1000
    const text = `${Math.round(before)} before, ${Math.round(await peakOf(pid))} at most`
    report.line(`${name.padEnd(12)} ${text} (${bytes[0]} bytes each, ${seconds.toFixed(1)} s)`)
  }
}

async function peakOf(pid: number): Promise<number> {
  const [, kibibytes] = /^VmHWM:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
  return (Number(kibibytes) * 1024) / MIB
}

/** Reports how long the first request after a change of a large schema takes, which reads the schema. */
export async function schemaLoad(
  owner: pg.Client,
  { url, headers }: { url: string; headers: Record<string, string> },
  report: Report,
): Promise<void> {
  for (let n = 0; n < TABLES; n += TABLES_AT_ONCE) {
    await owner.query(`do $$ begin for n in ${n + 1}..${n + TABLES_AT_ONCE} loop execute format(
      'create table wide_%s (id int primary key, name text not null, at timestamptz default now(), data jsonb, author_id int references authors)', n);
      end loop; end $$`)
  }
  report.title(`a schema of ${TABLES} tables`)
  const timed = async () => {
    const startedAt = performance.now()
    const reply = await fetch(`${url}/wide_1`, { headers })
    if (!reply.ok) throw new Error(`answered ${reply.status}: ${await reply.text()}`)
    await reply.arrayBuffer()
    return (performance.now() - startedAt) / 1000
  }
  const seconds = [await timed(), await timed()]
  const [first = 0, second = 0] = seconds
  report.line(`the next request takes ${(second * 1000).toFixed(1)} ms`)
  report.atMost('the first request, s', Number(first.toFixed(2)), LOAD_SECONDS_MAX)
}
