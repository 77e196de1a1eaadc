import type { Db } from '../db/client.ts'
import type { Config } from '../env.ts'
import type { ProjectEngine } from './engine.ts'
import { createNeonEngine } from './neon/neon.ts'
import { neonStates } from './neon/states.ts'
import { createPostgresEngine } from './postgres.ts'

interface Surroundings {
  db: Db
  egress: Fetcher | undefined
}

const opened = new WeakMap<Config, ProjectEngine>()

/** The engine that the settings choose. Kept for the isolate: it holds nothing of a request, and has many parts to make. */
export function openEngine(config: Config, surroundings: Surroundings): ProjectEngine {
  const known = opened.get(config)
  if (known) return known
  const engine = createEngine(config, surroundings)
  opened.set(config, engine)
  return engine
}

/** One place to add a driver. */
function createEngine(config: Config, { db, egress }: Surroundings): ProjectEngine {
  switch (config.ENGINE) {
    case 'postgres':
      return createPostgresEngine({
        adminUrl: config.ENGINE_URL,
        proxy: config.ENGINE_NEON_PROXY ?? config.NEON_PROXY,
        egress,
        host: config.DATABASE_HOST,
        port: config.DATABASE_PORT,
      })
    case 'neon':
      return createNeonEngine({
        apiUrl: config.NEON_API_URL,
        apiKey: config.NEON_API_KEY,
        organizationId: config.NEON_ORG_ID,
        postgresMajor: config.NEON_POSTGRES_VERSION,
        states: neonStates(db),
        proxy: config.ENGINE_NEON_PROXY,
        egress: config.ENGINE_NEON_PROXY ? egress : undefined,
      })
  }
}
