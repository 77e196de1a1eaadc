import pg from 'pg'
import { describe } from 'vitest'
import { HOST_NAMES } from '../../src/engine/host/names.ts'
import { type EngineUnderTest, engineContract } from './contract.ts'
import { startHostEngine } from './host-engine.ts'

/** The attributes and roles that an owner also has on the hosted service. */
const OWNER = {
  attributes: ['rolcreaterole', 'rolcreatedb', 'rolbypassrls', 'rolreplication'],
  roles: [
    ...['anon', 'authenticated', 'authenticator', 'pg_checkpoint', 'pg_create_subscription', 'pg_database_owner'],
    ...['pg_monitor', 'pg_read_all_data', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_signal_backend'],
    ...['pg_stat_scan_tables', 'pg_use_reserved_connections', 'service_role'],
  ],
  refused: ['alter table storage.objects disable row level security'],
}

async function start(): Promise<EngineUnderTest> {
  const { engine, states, stop } = await startHostEngine()
  return {
    engine,
    names: () => HOST_NAMES,
    owner: OWNER,
    async connect(ref, password, role) {
      const client = new pg.Client({ ...engine.connection({ ref, engineState: states.get(ref) }, role), password })
      client.on('error', () => {})
      await client.connect()
      return client
    },
    stop,
  }
}

describe('the driver host', () => engineContract(start))
