import type { Counts } from './metrics/counts.ts'
import type { Message } from './queue/message.ts'
import type { Decision, Rule } from './rate-limit/rule.ts'

// The calls that each Durable Object answers. Its class is in the room of its feature, which platform must not import.
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

/** The bindings and variables of the API Worker, as wrangler.toml and `npm start` give them. */
export interface Bindings extends Record<string, unknown> {
  BASE_URL?: string
  PROJECT_DOMAIN?: string
  RATE_LIMITERS: DurableObjectNamespace<RateLimiter>
  WEBHOOK_SENDERS: DurableObjectNamespace<WebhookSender>
  WEBHOOK_SWEEPER: DurableObjectNamespace<WebhookSweeper>
  LOG_DRAIN_SENDERS: DurableObjectNamespace<LogDrainSender>
  /** Its class is `WorkerInstances` in services/workers. */
  WORKER_INSTANCES: DurableObjectNamespace
  METRICS: DurableObjectNamespace<MetricsCollector>
  PROJECT_TASKS: Queue<Message>
  WEBHOOK_DELIVERIES: Queue<Message>
  WORKER_BUILDS: Queue<Message>
  /** A way out that reaches public addresses alone, where the runtime can give one; else the global fetch. */
  WEBHOOK_EGRESS?: Fetcher
  /** A way to the database's proxy and the bucket that is nearer than the global fetch, or the only one (Workers VPC). */
  SERVICES_EGRESS?: Fetcher
  /** Runs what users deploy, each in an isolate of its own. */
  LOADER: WorkerLoader
  /** The supervisor of the processes that run programs, where there is one; else programs run here. */
  PROGRAMS?: Fetcher
  /** The processes that it starts. */
  [slot: `PROGRAMS_${number}`]: Fetcher
  /** Known to the API, the supervisor and those processes. */
  PROGRAMS_KEY?: string
  /** In such a process, its id. */
  PROGRAMS_PROCESS?: string
  /** In such a process, the ports of this machine that programs must not reach, with commas between. */
  CLOSED_PORTS?: string
  /** In such a process, the way back. */
  API?: Fetcher
  /** The Worker of src/builder. */
  BUILDER: Fetcher
  /** Known to the API and to the builder, where that has a process of its own. */
  BUILDER_KEY?: string
  /** Tells of the processes of the installation, where they are known. */
  MACHINE?: Fetcher
  /** The files of the reference page. */
  ASSETS: Fetcher
}
