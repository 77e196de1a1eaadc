import type { SystemCtx } from '../../env.ts'
import type { Ports } from '../../outbound/webhooks/attempt.ts'
import { createResolver } from './dns.ts'

/** Where webhooks may go, by the settings of this installation. */
export const rulesOf = ({ config }: SystemCtx): Ports['rules'] => ({
  resolver: createResolver(config.WEBHOOK_DNS_URL),
  ownHosts: [
    ...[
      config.BASE_URL,
      config.NEON_PROXY,
      config.ENGINE_NEON_PROXY,
      config.ENGINE === 'host' ? config.HOST_URL : undefined,
      config.S3_ENDPOINT,
      config.S3_PUBLIC_ENDPOINT,
      config.WEBHOOK_DNS_URL,
    ].flatMap((url) => (url ? new URL(url).hostname : [])),
    ...(config.PROJECT_DOMAIN ? [config.PROJECT_DOMAIN, `.${config.PROJECT_DOMAIN}`] : []),
  ],
  allowLoopback: config.WEBHOOK_LOOPBACK,
})

/** The way out by which an address that somebody gave is reached. */
export const sendOf =
  ({ bindings: { WEBHOOK_EGRESS: egress } }: Pick<SystemCtx, 'bindings'>) =>
  (url: string, init: RequestInit): Promise<Response> =>
    egress ? egress.fetch(url, init) : fetch(url, init)

export const networkPorts = (ctx: SystemCtx): Ports => ({ post: sendOf(ctx), timeout, rules: rulesOf(ctx) })

export function timeout(ms: number) {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(new DOMException('too late', 'TimeoutError')), ms)
  return { signal: controller.signal, clear: () => clearTimeout(timer) }
}
