import type { ProjectNames } from '../names.ts'
import { STORAGE_OWNER } from '../storage/names.ts'

/** Role and database names, the same in every instance, as clients expect them. */
export const HOST_NAMES: ProjectNames = {
  database: 'postgres',
  owner: 'postgres',
  runner: 'postgres',
  reader: 'supabase_read_only_user',
  storage: STORAGE_OWNER,
  dataApi: 'authenticator',
}
