import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { errorCode } from '../../dev/start-error.ts'

/** Paths of a data folder, relative to it. */
interface DataFiles {
  /** Parents come before their children. */
  folders: string[]
  /** The control file comes last, because it describes the others. */
  files: string[]
}

/** Folders that are copied empty: the server rebuilds their contents, or they are provided separately, as WAL is. */
const EMPTY_FOLDERS = /^(pg_wal|pg_replslot|pg_dynshmem|pg_notify|pg_serial|pg_snapshots|pg_stat_tmp|pg_subtrans)$/
const SKIPPED_FILES =
  /^(postmaster\.(pid|opts)|backup_label.*|tablespace_map.*|backup_manifest|(recovery|standby)\.signal|current_logfiles|.*\.tmp)$/
const CONTROL_FILE = 'global/pg_control'

/** Lists the files that a copy of a running server's data folder needs, without its WAL. */
export async function dataFiles(data: string): Promise<DataFiles> {
  const found: DataFiles = { folders: [], files: [] }
  for (const entry of await readdir(data, { withFileTypes: true })) {
    if (entry.isFile() && !SKIPPED_FILES.test(entry.name)) found.files.push(entry.name)
    if (!entry.isDirectory() || entry.name.startsWith('pgsql_tmp')) continue
    found.folders.push(entry.name)
    if (!EMPTY_FOLDERS.test(entry.name)) await addFolder(found, data, entry.name)
  }
  found.files = found.files.filter((file) => file !== CONTROL_FILE)
  found.files.push(CONTROL_FILE)
  return found
}

async function addFolder(found: DataFiles, data: string, folder: string): Promise<void> {
  const entries = await readdir(join(data, folder), { withFileTypes: true }).catch(ignoreMissing)
  if (!entries) return
  const unlogged = new Set(entries.flatMap(({ name }) => /^(\d+)_init$/.exec(name)?.[1] ?? []))
  for (const entry of entries) {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory() && !entry.name.startsWith('pgsql_tmp')) {
      found.folders.push(path)
      await addFolder(found, data, path)
    } else if (entry.isFile() && isNeeded(entry.name, unlogged)) found.files.push(path)
  }
}

/** Recovery empties temporary and unlogged relations, and needs only the `init` fork of unlogged ones. */
function isNeeded(name: string, unlogged: ReadonlySet<string>): boolean {
  if (/^pg_internal\.init|^pgsql_tmp|^t\d+_\d+/.test(name)) return false
  const relation = /^(\d+)(?:_fsm|_vm)?(?:\.\d+)?$/.exec(name)?.[1]
  return relation === undefined || !unlogged.has(relation)
}

/** Error handler for files of a running server, which may disappear at any time. */
export function ignoreMissing(error: unknown): undefined {
  if (errorCode(error) === 'ENOENT') return undefined
  throw error
}
