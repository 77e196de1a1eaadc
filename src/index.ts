import { createFetch } from './app.ts'
import { createConsumer } from './background/consumer.ts'
import { createCronHandler } from './background/cron.ts'
import { duties, handlers } from './background/duties.ts'
import type { Bindings } from './platform/bindings.ts'
import { createProgramsHost } from './services/runtime/processes/process-entry.ts'
import { createOutbound } from './services/runtime/program-egress.ts'

const fetch = createFetch()

export { WebhookSweeper } from './background/sweeper.ts'
export { LogDrainSender } from './outbound/drains/log-drain-sender.ts'
export { WebhookSender } from './outbound/webhooks/webhook-sender.ts'
export { MetricsCollector } from './platform/metrics/metrics-collector.ts'
export { RateLimiter } from './platform/rate-limit/rate-limiter.ts'
export { FunctionConsole } from './services/runtime/program-console.ts'
export { WorkerAssets } from './services/workers/assets/binding.ts'
export { WorkerInstances } from './services/workers/worker-instances.ts'

export const ProgramsHost = createProgramsHost(fetch)

/** Outgoing network access of user programs. */
export const FunctionOutbound = createOutbound(fetch)

export default {
  fetch,
  queue: createConsumer(handlers),
  scheduled: createCronHandler(duties),
} satisfies ExportedHandler<Bindings>
