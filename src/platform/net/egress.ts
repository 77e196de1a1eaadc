import type { PlatformCtx } from '../context.ts'
import type { DestinationRules } from './destination.ts'
import { createResolver } from './dns.ts'

/** Rules for destinations that users configure. */
export const destinationRules = ({ config }: PlatformCtx): DestinationRules => ({
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

/** Returns the fetch function for destinations that users configure. */
export const createEgressFetch =
  ({ bindings: { WEBHOOK_EGRESS: egress } }: Pick<PlatformCtx, 'bindings'>) =>
  (url: string, init: RequestInit): Promise<Response> =>
    egress ? egress.fetch(url, init) : fetch(url, init)
