import { connect } from 'cloudflare:sockets'
import type { SystemCtx } from '../../ctx.ts'
import { createEgressFetch } from '../../platform/net/egress.ts'
import { SendFailure, type Transport } from './backend.ts'
import { gzip } from './gzip.ts'

const REQUEST_HEADERS = { 'user-agent': 'Pilothouse-Log-Drains/1.0' }

/** Opens network access for one batch. */
export function openTransport(ctx: Pick<SystemCtx, 'bindings'>, signal: AbortSignal): Transport {
  const { WEBHOOK_EGRESS: egress } = ctx.bindings
  const send = createEgressFetch(ctx)
  return {
    signal,
    async post({ url, headers, body, gzip: isGzipped }) {
      const response = await send(url, {
        method: 'POST',
        headers: { ...REQUEST_HEADERS, ...headers, ...(isGzipped && { 'content-encoding': 'gzip' }) },
        body: isGzipped ? await gzip(body) : body,
        redirect: 'manual',
        signal,
      })
      await response.body?.cancel()
      const { status } = response
      if (status >= 200 && status < 300) return
      const retryAfterMs = retryAfterOf(response.headers)
      throw new SendFailure('bad_status', `the destination answered ${status}`, { status, retryAfterMs })
    },
    async fetch(request) {
      const { method, headers } = request
      return send(request.url, { method, headers, body: await request.arrayBuffer(), redirect: 'manual', signal })
    },
    connect(address, { tls }) {
      const options = { secureTransport: tls ? 'on' : 'off', allowHalfOpen: true } as const
      return egress ? egress.connect(address, options) : connect(address, options)
    },
  }
}

function retryAfterOf(headers: Headers): number | undefined {
  const value = headers.get('retry-after') ?? ''
  return /^\d{1,6}$/.test(value) ? Number(value) * 1_000 : undefined
}
