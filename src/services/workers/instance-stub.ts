import type { Bindings } from '../../platform/bindings.ts'
import type { WorkerInstances } from './worker-instances.ts'

/** Stub of the Durable Object that holds the instances of a worker. */
export function instancesOf({ WORKER_INSTANCES }: Bindings, workerId: string) {
  const namespace = WORKER_INSTANCES as DurableObjectNamespace<WorkerInstances>
  return namespace.get(namespace.idFromName(workerId))
}
