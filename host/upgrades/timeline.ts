import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { historyName } from '../copies/wal-segments.ts'
import { openAdmin } from '../instances/admin.ts'
import { replaceFile } from '../instances/files.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import { startServer } from '../instances/server.ts'

/**
 * Gives the data of a stopped instance the timeline after `newest`, without a parent. The archive distinguishes segments by
 * their timeline, and segments of the old server may have the same numbers.
 */
export async function startTimelineAfter(newest: number, instance: PostgresInstance): Promise<void> {
  const { paths, programs, record } = instance
  const write = (file: string, text: string) => replaceFile(join(paths.data, file), text, record.account)
  for (let timeline = 2; timeline <= newest; timeline++) await write(`pg_wal/${historyName(timeline)}`, '')
  await write('recovery.signal', '')
  await write(
    'postgresql.auto.conf',
    "restore_command = 'false'\nrecovery_target_timeline = 'current'\nhot_standby = off\n",
  )
  const server = await startServer({ paths, programs, account: record.account })
  const admin = await openAdmin(paths.socket, 'postgres')
  // After the switch, the next segment has no page of the previous timeline, which is not a parent of the new one.
  await admin.rows('SELECT pg_switch_wal()').finally(() => admin.end())
  await server.stop()
  await write('postgresql.auto.conf', '')
  for (const file of await readdir(join(paths.data, 'pg_wal')))
    if (file.endsWith('.history')) await rm(join(paths.data, 'pg_wal', file))
  // The server archives the history at its start, before the first segment.
  await write(`pg_wal/${historyName(newest + 1)}`, `# Postgres ${record.major}, without a parent\n`)
  await write(`pg_wal/archive_status/${historyName(newest + 1)}.ready`, '')
}
