import { isDatabaseError } from '../failure.ts'
import { quoteLiteral } from '../names.ts'
import { type Session, withAdmin } from '../session.ts'
import type { Copy } from './copy.ts'
import { reown } from './reown.ts'
import { emptyStorage } from './storage-rows.ts'
import { createUnfinished } from './unfinished.ts'

/** Who connects to the parent meanwhile waits until it is done, so that only what takes seconds is done this way. */
const SIZE_BYTES_MAX = 4 * 1024 ** 3
/** From here on copying files, with the checkpoints that it takes, is faster than writing every page to the log. */
const FILE_COPY_FROM_BYTES = 128 * 1024 ** 2

/** What Postgres says of a template that somebody is using. */
const IN_USE = '55006'

/** Page by page, which only an idle parent allows: returns false when it is not. */
export async function cloneDatabase(copy: Copy): Promise<boolean> {
  const { cluster, admin, from, to, objects } = copy
  const parent = await look(admin, from.database)
  if (!parent || parent.used || (parent.open && parent.size_bytes > SIZE_BYTES_MAX)) return false
  const strategy = strategyFor(parent.size_bytes)
  try {
    await createUnfinished(admin, to, { template: from.database, strategy })
  } catch (error) {
    if (isDatabaseError(error) && error.code === IN_USE) return false
    throw error
  }
  await withAdmin(
    cluster,
    async (inside) => {
      await inside.rows(`SET statement_timeout = 0`)
      await inside.rows(reown(from, to))
      if (!objects) await emptyStorage(copy, inside)
    },
    to.database,
  )
  return true
}

const strategyFor = (sizeBytes: number) => (sizeBytes < FILE_COPY_FROM_BYTES ? 'WAL_LOG' : 'FILE_COPY')

interface Looks {
  used: boolean
  open: boolean
  size_bytes: number
}

/** Looked at first, because Postgres would hold up new sessions for five seconds before it gives up. */
async function look(admin: Session, database: string): Promise<Looks | undefined> {
  const [row] = await admin.rows<Looks>(
    `SELECT pg_database_size(oid)::float8 AS size_bytes, datallowconn AS open,
         EXISTS (SELECT FROM pg_stat_activity WHERE datid = pg_database.oid AND backend_type <> 'autovacuum worker')
           OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = datname) AS used
       FROM pg_database WHERE datname = ${quoteLiteral(database)}`,
  )
  return row
}
