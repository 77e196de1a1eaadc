import { readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openAdmin } from '../instances/admin.ts'
import { ownAll } from '../instances/files.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import { startServer } from '../instances/server.ts'

const historyOf = (timeline: number) => `${timeline.toString(16).toUpperCase().padStart(8, '0')}.history`

/**
 * Gives the data of a stopped instance a timeline of its own, the one after `newest`: the archive tells segments apart by
 * their timelines, and those of another server may have the same numbers. The timeline has no parent.
 */
export async function startTimelineAfter(newest: number, instance: PostgresInstance): Promise<void> {
  const { paths, programs, record } = instance
  const write = (file: string, text: string) => writeFile(join(paths.data, file), text, { mode: 0o600 })
  for (let timeline = 2; timeline <= newest; timeline++) await write(`pg_wal/${historyOf(timeline)}`, '')
  await write('recovery.signal', '')
  await write(
    'postgresql.auto.conf',
    "restore_command = 'false'\nrecovery_target_timeline = 'current'\nhot_standby = off\n",
  )
  await ownAll(paths.data, record.account)
  const server = await startServer({ paths, programs, account: record.account })
  const admin = await openAdmin(paths.socket, 'postgres')
  // The next segment has no page of the timeline before, which the new one does not descend from.
  await admin.rows('SELECT pg_switch_wal()').finally(() => admin.end())
  await server.stop()
  await write('postgresql.auto.conf', '')
  for (const file of await readdir(join(paths.data, 'pg_wal')))
    if (file.endsWith('.history')) await rm(join(paths.data, 'pg_wal', file))
  // The server hands it to the archive when it starts, before the first segment.
  await write(`pg_wal/${historyOf(newest + 1)}`, `# Postgres ${record.major}, without a parent\n`)
  await write(`pg_wal/archive_status/${historyOf(newest + 1)}.ready`, '')
  await ownAll(paths.data, record.account)
}
