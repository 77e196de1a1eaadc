import { definitionsOf } from './diff-definitions.ts'
import type { HostEngine } from './host-engine.ts'
import { RUNNER_PASSWORD } from './specs.ts'

export type Side = Awaited<ReturnType<typeof newSide>>

/** Makes a project's database without a project: what the engine makes, opened as its owner and as the superuser. */
export async function newSide({ create, connect, engine }: HostEngine) {
  const ref = await create()
  const run = async (query: string, role?: string) => {
    const client = await connect(ref, role)
    try {
      const results = [await client.query(query)].flat()
      return results.at(-1)?.rows ?? []
    } finally {
      await client.end()
    }
  }
  return {
    login: { ref, runnerPassword: RUNNER_PASSWORD },
    /** Runs a script as the owner in one message, as the API and most clients send it. */
    sql: (query: string) => run(query, 'postgres'),
    admin: (query: string) => run(query),
    /** Returns every definition that Postgres itself writes. */
    definitions: async (): Promise<string[]> => (await run(definitionsOf())).map(({ line }) => String(line)).sort(),
    remove: () => engine.remove(ref),
  }
}
