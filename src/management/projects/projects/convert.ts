import type * as z from 'zod'
import type { ProjectEngine } from '../../../engine/engine.ts'
import { type ProjectStatus, type projects, RELEASE_CHANNEL } from '../../../model/tables/index.ts'
import { diskOf } from '../../database/database-settings/disk.ts'
import { parseSettings } from '../settings/setting-areas.ts'
import {
  type CreatedProject,
  KNOWN_MAJORS,
  type Project,
  type ProjectHandle,
  type ProjectListV2,
  type ProjectPage,
  type RestoreVersions,
} from './schema.ts'

type Row = typeof projects.$inferSelect
/** A project of a list with its disk settings. */
interface ListedProject {
  project: Row
  disk: { value: object; updatedAt: Date } | null
}
type ProjectRow = Pick<Row, 'ref' | 'name' | 'region' | 'createdAt' | 'status' | 'postgresVersion' | 'engineState'> & {
  organizationSlug: string
}

/** Cloud provider reported for every driver, because clients only accept known ones. */
export const CLOUD_PROVIDER = 'AWS' as const

export const toCreatedProject = (row: ProjectRow): z.input<typeof CreatedProject> => ({
  id: row.ref,
  ref: row.ref,
  organization_id: row.organizationSlug,
  organization_slug: row.organizationSlug,
  name: row.name,
  region: row.region,
  created_at: row.createdAt.toISOString(),
  status: row.status,
})

export const toProject = (row: ProjectRow, engine: ProjectEngine): z.input<typeof Project> => ({
  ...toCreatedProject(row),
  database: {
    host: engine.connection(row).host,
    version: row.postgresVersion,
    postgres_engine: majorOf(row.postgresVersion),
    release_channel: RELEASE_CHANNEL,
  },
})

export const toProjectHandle = ({ id, ref, name }: Row): z.input<typeof ProjectHandle> => ({ id, ref, name })

export const toPageItem = (
  listed: ListedProject,
  engine: ProjectEngine,
): z.input<typeof ProjectPage>['projects'][number] => {
  const { ref, parentRef } = listed.project
  return { ref, is_branch: parentRef !== null, ...toListed(listed, engine) }
}

export const toProjectV2 = (
  listed: ListedProject,
  engine: ProjectEngine,
): z.input<typeof ProjectListV2>['data'][number] => ({
  type: 'project',
  id: listed.project.ref,
  attributes: toListed(listed, engine),
})

const toListed = (listed: ListedProject, engine: ProjectEngine) => ({
  name: listed.project.name,
  status: listed.project.status,
  cloud_provider: CLOUD_PROVIDER,
  region: listed.project.region,
  inserted_at: listed.project.createdAt.toISOString(),
  databases: databasesOf(listed, engine),
})

/** Converts the database and its replicas. A replica has the status of its project once it is ready. */
const databasesOf = (listed: ListedProject, { replicas }: ProjectEngine) => [
  toDatabase(listed),
  ...(replicas?.list(listed.project) ?? []).map(({ identifier, isReady, hasFailed }) => ({
    ...toDatabase(listed),
    ...(isReady ? {} : { status: hasFailed ? 'INIT_READ_REPLICA_FAILED' : 'INIT_READ_REPLICA' }),
    identifier,
    type: 'READ_REPLICA' as const,
  })),
]

function toDatabase({ project, disk }: ListedProject) {
  const { type, throughput_mibps, size_gb } = diskOf(parseSettings('disk', disk?.value))
  return {
    infra_compute_size: project.instanceSize,
    region: project.region,
    status: databaseStatus(project.status),
    cloud_provider: CLOUD_PROVIDER,
    identifier: project.ref,
    type: 'PRIMARY' as const,
    disk_volume_size_gb: size_gb,
    disk_type: type,
    disk_throughput_mbps: throughput_mibps,
    ...(disk && { disk_last_modified_at: disk.updatedAt.toISOString() }),
  }
}

/** Statuses that a database can have; the others of a project, such as paused, become UNKNOWN. */
const DATABASE_STATUSES: readonly ProjectStatus[] = [
  'ACTIVE_HEALTHY',
  'ACTIVE_UNHEALTHY',
  'COMING_UP',
  'GOING_DOWN',
  'INIT_FAILED',
  'RESTORING',
  'RESTARTING',
  'RESIZING',
]
const databaseStatus = (status: ProjectStatus) => (DATABASE_STATUSES.includes(status) ? status : 'UNKNOWN')

export const majorOf = (version: string): string => version.split('.')[0] ?? ''

/** Returns the newest major version known to clients that is not newer than this version: clients refuse unknown ones. */
export const knownMajorOf = (version: string): (typeof KNOWN_MAJORS)[number] =>
  KNOWN_MAJORS.findLast((known) => Number(known) <= Number(majorOf(version))) ?? KNOWN_MAJORS[0]

export const toRestoreVersions = ({ postgresVersion: version }: Row): z.input<typeof RestoreVersions> => ({
  available_versions: version
    ? [{ version, release_channel: RELEASE_CHANNEL, postgres_engine: knownMajorOf(version) }]
    : [],
})
