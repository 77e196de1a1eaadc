import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { replaceFile } from './files.ts'
import type { InstancePaths, InstanceRecord } from './types.ts'

const FILE = 'instance.json'

/** The folders of a host: `root` for persistent files, `run` for sockets. */
export interface HostFolders {
  root: string
  run: string
}

const PROJECT = /^([a-z]{20}|control)$/
/** Matches the project's reference, the region, and letters that distinguish its replicas. */
const REPLICA = /^[a-z]{20}-rr-[a-z0-9-]{1,26}$/

/** Whether an instance can have this name; `control` is the control plane's own database. */
export const isInstanceName = (name: string): boolean => PROJECT.test(name) || isReplicaName(name)

export const isReplicaName = (name: string): boolean => REPLICA.test(name)

export const instancesIn = ({ root }: HostFolders): string => join(root, 'instances')

export function pathsOf(folders: HostFolders, name: string): InstancePaths {
  const folder = join(instancesIn(folders), name)
  return {
    folder,
    data: join(folder, 'data'),
    log: join(folder, 'log', 'postgres.log'),
    wal: join(folder, 'wal'),
    socket: join(folders.run, isReplicaName(name) ? shortName(name) : name),
  }
}

/** A short folder name for a replica's socket. It starts with a digit, so it cannot be a project's reference. */
const shortName = (name: string): string => `0${createHash('sha256').update(name).digest('hex').slice(0, 19)}`

export const writeRecord = (folder: string, record: InstanceRecord, isDurable: boolean): Promise<void> =>
  replaceFile(join(folder, FILE), `${JSON.stringify(record, null, 2)}\n`, undefined, { isSynced: isDurable })

export const readRecord = async (folder: string): Promise<InstanceRecord> =>
  JSON.parse(await readFile(join(folder, FILE), 'utf8'))

/** Suffixes of the folders of creations and removals. An operator's own folders are left alone. */
const UNFINISHED = /\.(new|gone|spare)-[0-9a-f]{8}$/

/** Lists the names of all complete instances, and the folders that an interrupted creation or removal has left. */
export async function listFolders(folders: HostFolders): Promise<{ names: string[]; leftovers: string[] }> {
  const parent = instancesIn(folders)
  await mkdir(parent, { recursive: true, mode: 0o711 })
  const entries = await readdir(parent)
  const leftovers = entries.filter((name) => UNFINISHED.test(name)).map((name) => join(parent, name))
  return { names: entries.filter(isInstanceName), leftovers }
}
