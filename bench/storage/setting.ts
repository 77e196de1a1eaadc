import type { OpenedProject } from '../../src/services/gateway/open-project.ts'
import type { Storage } from '../../src/services/storage/request.ts'
import { type Connection, withConnections } from '../client.ts'
import type { Environment } from '../environment.ts'
import { type DirectBucket, directStorage, withDirectBucket } from './floor.ts'
import { prepareProject } from './project.ts'

/** One of those who work at the same time, each with a connection of its own to everything. */
export interface Lane {
  api: Connection
  bucket: Connection
  storage: Storage
}

export interface Setting {
  lanes: readonly Lane[]
  project: OpenedProject
  /** Of a user whom a policy lets do anything with what is his. */
  token: string
  bucket: DirectBucket
}

export async function withSetting(
  environment: Environment,
  concurrency: number,
  work: (setting: Setting) => Promise<void>,
): Promise<void> {
  const { project, token, connect } = await prepareProject(environment)
  const clients = await Promise.all(Array.from({ length: concurrency }, connect))
  try {
    await withDirectBucket((bucket) =>
      withConnections(environment.port, concurrency, (apis) =>
        withConnections(bucket.port, concurrency, async (buckets) => {
          const lanes = clients.flatMap((client, n) => {
            const [api, direct] = [apis[n], buckets[n]]
            return api && direct ? [{ api, bucket: direct, storage: directStorage(project, client) }] : []
          })
          await work({ lanes, project, token, bucket })
        }),
      ),
    )
  } finally {
    await Promise.all(clients.map((client) => client.end()))
  }
}
