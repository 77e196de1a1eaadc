import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { type Host, startHost } from '../../host/host.ts'
import type { ProjectEngine } from '../../src/engine/engine.ts'
import type { HostAddress, HostDirectory } from '../../src/engine/host/directory.ts'
import { createHostEngine } from '../../src/engine/host/host.ts'
import { type HostEngineConfig, type HostState, hostAccess } from '../../src/engine/host/project-host.ts'
import type { Cluster } from '../../src/engine/session.ts'
import { newHostFolder } from '../host/host-folder.ts'
import { newRef, specOf } from './specs.ts'

const KEY = 'a key of the test, of enough letters'

export interface HostEngine {
  engine: ProjectEngine
  host: Host
  states: ReadonlyMap<string, HostState>
  clusterOf(ref: string): Promise<Cluster>
  /** Creates a project and returns its ref. */
  create(): Promise<string>
  /** Opens a session as any role, as the host itself does. */
  connect(ref: string, role?: string, database?: string): Promise<pg.Client>
  stop(): Promise<void>
}

/** The directory of an installation whose projects are all on one host. */
export const oneHost = (host: HostAddress): HostDirectory => ({
  of: async () => host,
  all: async () => [host],
  get: async () => host,
  cacheHost: () => {},
  local: host,
})

/** Starts a database host for one test, and the driver in front of it. */
export async function startHostEngine(): Promise<HostEngine> {
  const folder = await newHostFolder()
  const host = await startHost({ folder, key: KEY, isDurable: false })
  const states = new Map<string, HostState>()
  const config: HostEngineConfig = {
    hosts: oneHost({
      ...{ id: 'host', url: host.url, key: KEY },
      ...{ databaseHost: '127.0.0.1', databasePort: host.gatewayPort },
    }),
    states: {
      read: async (ref) => states.get(ref),
      refs: async () => [...states.keys()],
      write: async (ref, state) => void (state ? states.set(ref, state) : states.delete(ref)),
    },
  }
  const engine = createHostEngine(config)
  return {
    engine,
    host,
    states,
    clusterOf: hostAccess(config).clusterOf,
    async create() {
      const ref = newRef()
      await engine.create(specOf(ref))
      return ref
    },
    async connect(ref, user = 'supabase_admin', database = 'postgres') {
      const client = new pg.Client({ host: join(host.run, ref), user, database })
      client.on('error', () => {})
      await client.connect()
      return client
    },
    async stop() {
      await host.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
