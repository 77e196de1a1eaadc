import type { SystemCtx } from '../env.ts'
import type { Ports } from './attempt.ts'
import { createResolver } from './dns.ts'

/** Where webhooks may go, by the settings of this installation. */
export const rulesOf = ({ config }: SystemCtx): Ports['rules'] => ({
  resolver: createResolver(config.WEBHOOK_DNS_URL),
  ownHosts: [
    config.BASE_URL,
    config.NEON_PROXY,
    config.ENGINE_NEON_PROXY,
    config.S3_ENDPOINT,
    config.WEBHOOK_DNS_URL,
  ].flatMap((url) => (url ? new URL(url).hostname : [])),
  allowLoopback: config.WEBHOOK_LOOPBACK,
})

export const networkPorts = (ctx: SystemCtx): Ports => {
  const { WEBHOOK_EGRESS: egress } = ctx.bindings
  return {
    post: (url, init) => (egress ? egress.fetch(url, init) : fetch(url, init)),
    timeout,
    rules: rulesOf(ctx),
  }
}

function timeout(ms: number) {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(new DOMException('too late', 'TimeoutError')), ms)
  return { signal: controller.signal, clear: () => clearTimeout(timer) }
}
