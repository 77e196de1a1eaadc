import pg from 'pg'
import { createPostgresEngine } from '../../src/engine/postgres.ts'
import type { Server } from '../../src/engine/session.ts'
import { definitionsOf } from './diff-definitions.ts'

const RUNNER_PASSWORD = 'runner password'
const PASSWORD = 'owner password'

export type Side = Awaited<ReturnType<typeof newSide>>

/** A project's database without a project: what the engine makes, entered as its owner and as the superuser. */
export async function newSide(cluster: Server) {
  const ref = Array.from({ length: 20 }, () => String.fromCharCode(97 + Math.floor(Math.random() * 26))).join('')
  const engine = createPostgresEngine({ ...cluster, host: '', port: 0 })
  await engine.create({ ref, password: PASSWORD, runnerPassword: RUNNER_PASSWORD })
  const database = `p_${ref}`
  const run = async (query: string, login?: { username: string; password: string }) => {
    const url = Object.assign(new URL(cluster.adminUrl), { pathname: `/${database}`, ...login })
    const client = new pg.Client({ connectionString: url.href })
    await client.connect()
    try {
      const results = [await client.query(query)].flat()
      return results.at(-1)?.rows ?? []
    } finally {
      await client.end()
    }
  }
  return {
    login: { ref, runnerPassword: RUNNER_PASSWORD },
    /** As the owner: one message, as the API and most clients send a script. */
    sql: (query: string) => run(query, { username: database, password: PASSWORD }),
    admin: (query: string) => run(query),
    /** Every definition that Postgres itself writes, with the names of the project's own roles made neutral. */
    definitions: async (): Promise<string[]> =>
      (await run(definitionsOf())).map(({ line }) => String(line).replaceAll(database, 'OWNER')).sort(),
    remove: () => engine.remove(ref),
  }
}
