import { createFetch } from './app.ts'
import { duties, handlers } from './background.ts'
import type { Bindings } from './env.ts'
import { createProgramsHost } from './programs/host.ts'
import { createConsumer } from './queue/consume.ts'
import { createSweeper } from './queue/sweep.ts'
import { createOutbound } from './runtime/outbound.ts'

const fetch = createFetch()

export { LogDrainSender } from './objects/log-drain-sender.ts'
export { MetricsCollector } from './objects/metrics-collector.ts'
export { RateLimiter } from './objects/rate-limiter.ts'
export { WebhookSender } from './objects/webhook-sender.ts'
export { WorkerInstances } from './objects/worker-instances.ts'
export { FunctionConsole } from './runtime/console.ts'
export { WebhookSweeper } from './sweeper.ts'
export { WorkerAssets } from './workers/assets/binding.ts'

export const ProgramsHost = createProgramsHost(fetch)

/** Which ways out programs have. */
export const FunctionOutbound = createOutbound(fetch)

export default {
  fetch,
  queue: createConsumer(handlers),
  scheduled: createSweeper(duties),
} satisfies ExportedHandler<Bindings>
