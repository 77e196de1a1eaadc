import type { Config } from '../env.ts'
import type { ProjectEngine } from './engine.ts'
import { createPostgresEngine } from './postgres.ts'

/** The engine that the settings choose; one place to add a driver. */
export function createEngine(config: Config, egress: Fetcher | undefined): ProjectEngine {
  switch (config.ENGINE) {
    case 'postgres':
      return createPostgresEngine({
        adminUrl: config.ENGINE_URL,
        proxy: config.ENGINE_NEON_PROXY ?? config.NEON_PROXY,
        egress,
        host: config.DATABASE_HOST,
        port: config.DATABASE_PORT,
      })
  }
}
