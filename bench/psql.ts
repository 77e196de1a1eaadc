import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

export interface Psql {
  /** Resolves when the last row has arrived. */
  query(text: string): Promise<void>
  end(): Promise<void>
}

const END = '-- end --'

/** Starts a `psql` that runs one statement after another; returns undefined if it is not installed. */
export async function startPsql(url: URL): Promise<Psql | undefined> {
  const psql = spawn('psql', ['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1'], {
    env: {
      ...{ PATH: process.env.PATH, PGHOST: url.hostname, PGPORT: url.port, PGDATABASE: url.pathname.slice(1) },
      ...{ PGUSER: url.username, PGPASSWORD: decodeURIComponent(url.password) },
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const spawned = await once(psql, 'spawn').then(
    () => true,
    () => false,
  )
  if (!spawned) return undefined
  const lines = createInterface({ input: psql.stdout })[Symbol.asyncIterator]()
  return {
    async query(text) {
      psql.stdin.write(`${text};\n\\echo ${END}\n`)
      for (;;) {
        const { value, done } = await lines.next()
        if (done) throw new Error('psql has ended')
        if (value === END) return
      }
    },
    async end() {
      const ended = once(psql, 'close')
      psql.stdin.end('\\q\n')
      await ended
    },
  }
}
