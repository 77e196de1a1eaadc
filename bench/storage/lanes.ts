import type { OpenedProject } from '../../src/services/gateway/open-project.ts'
import type { Storage } from '../../src/services/storage/database.ts'
import { type Connection, withConnections } from '../client.ts'
import type { Environment } from '../environment.ts'
import { type DirectBucket, directStorage, withDirectBucket } from './floor.ts'
import { prepareProject } from './project.ts'

/** One of the concurrent workers, each with its own connections to everything. */
export interface Lane {
  api: Connection
  bucket: Connection
  storage: Storage
}

export interface StorageBench {
  lanes: readonly Lane[]
  project: OpenedProject
  /** Token of a user whom a policy allows everything with their own objects. */
  token: string
  bucket: DirectBucket
}

export async function withLanes(
  environment: Environment,
  concurrency: number,
  work: (bench: StorageBench) => Promise<void>,
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
