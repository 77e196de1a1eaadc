import type { ProjectNames } from '../names.ts'
import { STORAGE_OWNER } from '../storage/names.ts'

/** The same in every instance, and the names that clients expect. */
export const HOST_NAMES: ProjectNames = {
  database: 'postgres',
  owner: 'postgres',
  runner: 'postgres',
  reader: 'supabase_read_only_user',
  storage: STORAGE_OWNER,
}
