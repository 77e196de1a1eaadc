import type { Config } from '../config.ts'
import type { Db } from '../platform/db/client.ts'
import { withRemovalLock } from '../platform/removals.ts'
import { engineStates } from './driver-states.ts'
import type { ProjectEngine } from './engine.ts'
import { type HostAddress, hostDirectory, LOCAL } from './host/directory.ts'
import { createHostEngine } from './host/host.ts'
import type { HostState } from './host/project-host.ts'
import { createNeonEngine } from './neon/neon.ts'
import type { NeonState } from './neon/sites.ts'

interface EngineDependencies {
  db: Db
  egress: Fetcher | undefined
}

/** Creates the engine that `config.ENGINE` selects. To add a driver, add a case here. */
export function openEngine(config: Config, { db, egress }: EngineDependencies): ProjectEngine {
  switch (config.ENGINE) {
    case 'host':
      return createHostEngine({
        hosts: hostDirectory({ db, encryptionKey: config.ENCRYPTION_KEY, local: localHost(config) }),
        states: engineStates<HostState>(db),
        plans: `sleep ${config.SLEEP_AFTER_MINUTES}/${config.PAID_SLEEP_AFTER_MINUTES}`,
        withRemovalLock: (remove) => withRemovalLock(config, remove),
        egress,
      })
    case 'neon':
      return createNeonEngine({
        apiUrl: config.NEON_API_URL,
        apiKey: config.NEON_API_KEY,
        organizationId: config.NEON_ORG_ID,
        postgresMajor: config.NEON_POSTGRES_VERSION,
        states: engineStates<NeonState>(db),
        proxy: config.ENGINE_NEON_PROXY,
        egress: config.ENGINE_NEON_PROXY ? egress : undefined,
      })
  }
}

/** The host that the settings describe; undefined if all hosts are in the table `hosts`. */
function localHost(config: Extract<Config, { ENGINE: 'host' }>): HostAddress | undefined {
  const { HOST_URL: url, HOST_KEY: key, DATABASE_HOST, DATABASE_PORT, DATABASE_DOMAIN } = config
  if (url === undefined || key === undefined || DATABASE_HOST === undefined || DATABASE_PORT === undefined) return
  const databases = { databaseHost: DATABASE_HOST, databasePort: DATABASE_PORT, databaseDomain: DATABASE_DOMAIN }
  return { id: LOCAL, url, key, ...databases }
}
