import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { and, eq, isNull, notInArray, sql } from 'drizzle-orm'
import * as z from 'zod'
import { s3Store } from '../../host/backups/store.ts'
import type { Host } from '../../host/host.ts'
import { type HostApi, hostApi, NoContent } from '../../src/engine/host/client.ts'
import { LOCAL } from '../../src/engine/host/directory.ts'
import { backups, projects } from '../../src/model/tables/index.ts'
import { bucketSettings } from '../bucket.ts'
import { controlUrlOf } from '../control-database.ts'
import { deleteData } from '../data-folder.ts'
import { guardChildren } from '../guard-children.ts'
import { openLifetime } from '../lifetime.ts'
import type { LocalSecrets } from '../secrets.ts'
import { type ControlDb, openControlDatabase } from '../seed.ts'
import { startBucket, startLocalHost } from '../services.ts'
import { errorMessage, StartError } from '../start-error.ts'
import { copyOut } from './copy.ts'
import { type KeyFiles, writeKeyFile } from './keys.ts'
import { type Manifest, OBJECTS, type StoredInstance } from './manifest.ts'
import { CONTROL, isTemporary, removeBackup } from './moment.ts'
import type { BackupPlace } from './place.ts'

interface Options {
  place: BackupPlace
  folder: string
  manifest: Manifest
  keys: KeyFiles
  secrets: LocalSecrets
  print(line: string): void
}

/**
 * Creates a data folder from a backup; a failure or a signal leaves it empty. `secrets.json` is written last: without it,
 * `npm start` refuses the folder. Returns the projects whose databases the backup does not have or could not be recovered.
 */
export async function makeDataFolder(options: Options): Promise<string[]> {
  const { folder, keys } = options
  guardChildren()
  await mkdir(folder, { recursive: true, mode: 0o700 })
  // Created first: `npm start` would generate new secrets for a folder without it.
  await mkdir(join(folder, 'host', 'instances'), { recursive: true, mode: 0o711 })
  const lifetime = openLifetime()
  const interrupted = new Promise<never>((_, reject) =>
    lifetime.onSignal((signal) => reject(new StartError(`Interrupted by ${signal}: ${folder} is empty again.`))),
  )
  try {
    const lost = await Promise.race([fill(options, lifetime), interrupted])
    await lifetime.end()
    for (const file of ['credentials.json', 'secrets.json'] as const) await writeKeyFile(folder, keys, file)
    return lost
  } catch (error) {
    await lifetime.end()
    await deleteData(folder)
    throw error
  }
}

async function fill(
  { place, folder, manifest, keys, secrets, print }: Options,
  { add }: ReturnType<typeof openLifetime>,
): Promise<string[]> {
  for (const file of ['host/tls/server.key', 'host/tls/server.crt'] as const) await writeKeyFile(folder, keys, file)
  const { endpoint } = await add(startBucket(folder, secrets))
  const { put } = s3Store(bucketSettings(endpoint, secrets))
  await copyOut(place, manifest.files[OBJECTS], put)
  print(`Bucket: ${manifest.objects.count} objects, ${manifest.objects.bytes} bytes`)
  const host = await add(startLocalHost({ folder, secrets, endpoint }))
  return recoverInstances(host, secrets, manifest, print)
}

async function recoverInstances(
  host: Host,
  { HOST_KEY: key, CONTROL_PASSWORD }: LocalSecrets,
  { instances, at }: Manifest,
  print: Options['print'],
): Promise<string[]> {
  const api = hostApi({ id: LOCAL, url: host.url, key, databaseHost: '', databasePort: 0 }, undefined)
  const control = instances.find(({ name }) => name === CONTROL)
  if (!control) throw new StartError('The backup is damaged: it has no control database.')
  await recover(api, control, at)
  await removeTemporary(api, control)
  const { db, close } = openControlDatabase(controlUrlOf(host.gatewayPort, CONTROL_PASSWORD))
  try {
    await removeOtherBackups(db, instances)
    print('Control database: restored')
    const replicas = await listReplicas(db)
    const lost = await listLeftOut(db, instances)
    for (const name of lost) print(`Project ${name}: left out of the backup`)
    for (const project of projectsIn(instances)) {
      const problem = await recover(api, project, at).then(() => undefined, errorMessage)
      if (problem !== undefined) {
        // Without the host, no project can be recovered.
        await api.describe()
        print(problem)
        lost.push(project.name)
        continue
      }
      for (const { identifier } of replicas.filter(({ ref }) => ref === project.name))
        await makeReplica(api, project.name, identifier).catch((error) =>
          print(`Read replica ${identifier} was not made (${errorMessage(error)}): remove it, and set it up again.`),
        )
      await removeTemporary(api, project).catch((error) =>
        print(`The base backup of ${project.name} was left in the archive: ${errorMessage(error)}`),
      )
      // Stopped, because otherwise the servers of all projects would be running at the end.
      await host.pool.require(project.name).stop()
      print(`Project ${project.name}: restored`)
    }
    return lost
  } finally {
    await close()
  }
}

const projectsIn = (instances: readonly StoredInstance[]) => instances.filter(({ name }) => name !== CONTROL)

const makeReplica = (api: HostApi, ref: string, identifier: string): Promise<void> =>
  api.ask(NoContent, {
    method: 'PUT',
    path: `/instances/${ref}/replicas/${identifier}`,
    waitMs: RECOVERY_MS_MAX,
  })

const RECOVERY_MS_MAX = 24 * 3_600_000

async function recover(api: HostApi, instance: StoredInstance, at: string): Promise<void> {
  const { name, isPaused, spec } = instance
  const path = `/instances/${name}`
  const body = { ...spec, is_paused: isPaused, at }
  try {
    await api.ask(NoContent, { method: 'PUT', path: `${path}/arrival`, body, waitMs: RECOVERY_MS_MAX })
    await api.ask(NoContent, { method: 'POST', path: `${path}/unseal` })
  } catch (error) {
    throw new StartError(`${name} was not recovered: ${errorMessage(error)}.`)
  }
}

/** Removes the temporary backup of a recovered instance. Otherwise a project without backups of its own would archive WAL forever. */
async function removeTemporary(api: HostApi, { name, backup }: StoredInstance): Promise<void> {
  if (isTemporary(backup)) await removeBackup(api, name, backup)
}

/** Refs of the projects with a database that the backup of the installation left out. */
async function listLeftOut(db: ControlDb, instances: readonly StoredInstance[]): Promise<string[]> {
  const isThere = and(
    isNull(projects.removedAt),
    sql`${projects.engineState} ->> 'host' is not null`,
    notInArray(projects.status, ['COMING_UP', 'INIT_FAILED', 'GOING_DOWN']),
  )
  const found = await db.select({ ref: projects.ref }).from(projects).where(isThere)
  const kept = new Set(instances.map(({ name }) => name))
  return found.flatMap(({ ref }) => (kept.has(ref) ? [] : [ref]))
}

/** Marks backups as removed that the backup of the installation does not contain. */
async function removeOtherBackups(db: ControlDb, instances: readonly StoredInstance[]): Promise<void> {
  const kept = instances.map(({ backup }) => Number(backup))
  await db
    .update(backups)
    .set({ status: 'REMOVED', removedAt: new Date() })
    .where(and(eq(backups.status, 'COMPLETED'), notInArray(backups.id, kept)))
}

const State = z.object({ replicas: z.array(z.object({ identifier: z.string() })).default([]) })

/** Lists the read replicas of all projects. Backups do not contain them, because they are copies of their projects. */
async function listReplicas(db: ControlDb): Promise<{ ref: string; identifier: string }[]> {
  const rows = await db
    .select({ ref: projects.ref, state: projects.engineState })
    .from(projects)
    .where(isNull(projects.removedAt))
  return rows.flatMap(({ ref, state }) => {
    const { data } = State.safeParse(state)
    return (data?.replicas ?? []).map(({ identifier }) => ({ ref, identifier }))
  })
}
