import pg from 'pg'
import type { ProjectEngine } from '../../src/engine/engine.ts'
import { projectNames } from '../../src/engine/names.ts'
import type { NeonEngineConfig } from '../../src/engine/neon/connection.ts'
import { createNeonEngine } from '../../src/engine/neon/neon.ts'
import type { NeonState } from '../../src/engine/neon/sites.ts'
import { API_KEY, type NeonServer, startNeonServer } from '../support/neon-server/server.ts'
import { type EngineUnderTest, PLAIN_OWNER } from './contract.ts'

export interface NeonUnderTest extends EngineUnderTest {
  server: NeonServer
  states: Map<string, NeonState>
  /** The same installation, as another consumer uses it. */
  another(more: Partial<NeonEngineConfig>): ProjectEngine
}

/** Starts the driver with a Neon server for one test. */
export async function startNeonEngine(): Promise<NeonUnderTest> {
  const server = await startNeonServer()
  const states = new Map<string, NeonState>()
  const config: NeonEngineConfig = {
    apiUrl: server.url,
    apiKey: API_KEY,
    postgresMajor: 18,
    proxy: server.proxy,
    states: {
      read: async (ref) => states.get(ref),
      refs: async () => [...states.keys()],
      write: async (ref, state) => void (state ? states.set(ref, state) : states.delete(ref)),
    },
  }
  const engine = createNeonEngine(config)
  return {
    engine,
    names: projectNames,
    owner: PLAIN_OWNER,
    another: (more) => createNeonEngine({ ...config, ...more }),
    server,
    states,
    stop: server.stop,
    async connect(ref, password, user = `p_${ref}`) {
      const { host, database } = engine.connection({ ref, engineState: states.get(ref) })
      const port = await server.port(host)
      const client = new pg.Client({ host: '127.0.0.1', port, user, password, database })
      client.on('error', () => {})
      await client.connect()
      return client
    },
  }
}
