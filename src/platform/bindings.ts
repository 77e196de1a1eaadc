import type { Counts } from './metrics/counts.ts'
import type { Message } from './queue/message.ts'
import type { Decision, Rule } from './rate-limit/rule.ts'

// The RPC methods of each Durable Object. The classes are in the rooms of their features, which platform must not import.
interface RateLimiter extends Rpc.DurableObjectBranded {
  take(rules: readonly Rule[], now: number): Decision
}
interface WebhookSender extends Rpc.DurableObjectBranded {
  wake(endpointId: string, options?: { swept?: boolean; asked?: boolean }): Promise<void>
  end(): Promise<void>
}
interface WebhookSweeper extends Rpc.DurableObjectBranded {
  arm(): Promise<void>
}
interface LogDrainSender extends Rpc.DurableObjectBranded {
  wake(drainId: string): void
}
interface MetricsCollector extends Rpc.DurableObjectBranded {
  add(counts: Counts): Promise<Counts>
}

/** Bindings and variables of the API Worker, set by wrangler.toml and `npm start`. */
export interface Bindings extends Record<string, unknown> {
  BASE_URL?: string
  PROJECT_DOMAIN?: string
  RATE_LIMITERS: DurableObjectNamespace<RateLimiter>
  WEBHOOK_SENDERS: DurableObjectNamespace<WebhookSender>
  WEBHOOK_SWEEPER: DurableObjectNamespace<WebhookSweeper>
  LOG_DRAIN_SENDERS: DurableObjectNamespace<LogDrainSender>
  /** The class is `WorkerInstances` in services/workers. */
  WORKER_INSTANCES: DurableObjectNamespace
  METRICS: DurableObjectNamespace<MetricsCollector>
  PROJECT_TASKS: Queue<Message>
  WEBHOOK_DELIVERIES: Queue<Message>
  WORKER_BUILDS: Queue<Message>
  /** Fetcher that can reach public addresses only, if the runtime provides one. Without it the global fetch is used. */
  WEBHOOK_EGRESS?: Fetcher
  /** Fetcher for the database proxy and the bucket: a shorter path than the global fetch, or the only one (Workers VPC). */
  SERVICES_EGRESS?: Fetcher
  /** Runs each deployed function and worker in its own isolate. */
  LOADER: WorkerLoader
  /** Supervisor of the processes that run programs. Without it programs run in this process. */
  PROGRAMS?: Fetcher
  /** Processes that the supervisor has started. */
  [slot: `PROGRAMS_${number}`]: Fetcher
  /** Secret that the API, the supervisor and the program processes share. */
  PROGRAMS_KEY?: string
  /** Id of this process. Set in a program process. */
  PROGRAMS_PROCESS?: string
  /** Ports of this machine that programs must not reach, separated by commas; program processes get more than the API. */
  CLOSED_PORTS?: string
  /** The API Worker. Set in a program process. */
  API?: Fetcher
  /** The Worker of src/builder. */
  BUILDER: Fetcher
  /** Secret that the API shares with the builder, if the builder is a process of its own. */
  BUILDER_KEY?: string
  /** Reports the processes of the installation, if they are known. */
  MACHINE?: Fetcher
  /** Files of the API reference page. */
  ASSETS: Fetcher
}
