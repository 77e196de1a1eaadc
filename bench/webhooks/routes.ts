import { neonConfig } from '@neondatabase/serverless'
import { Hono } from 'hono'
import { createCtx } from '../../src/ctx.ts'
import type { AppEnv } from '../../src/management/kernel/app-env.ts'
import { publish } from '../../src/outbound/events/publish.ts'
import { networkPorts } from '../../src/outbound/webhooks/attempt.ts'
import { wakeSenders } from '../../src/outbound/webhooks/wake-senders.ts'
import { send } from '../../src/platform/queue/send.ts'

/** Round trips to the control database by purpose, with the total time until their answers. */
export type Statements = Record<string, { count: number; ms: number }>

let statements: Statements = {}

const KINDS = { claim: 'with candidates as', settle: 'json_to_recordset', publish: 'insert into "webhook_events"' }
const kindOf = (body: unknown) => {
  const start = String(body).slice(0, 400)
  return Object.entries(KINDS).find(([, text]) => start.includes(text.replaceAll('"', '\\"')))?.[0] ?? 'other'
}

const sendStatement = neonConfig.fetchFunction
neonConfig.fetchFunction = async (url: string, init: RequestInit) => {
  const startedAt = Date.now()
  const reply = await sendStatement(url, init)
  const kind = kindOf(init.body)
  statements[kind] ??= { count: 0, ms: 0 }
  statements[kind].count += 1
  statements[kind].ms += Date.now() - startedAt
  return reply
}

export const webhookRoutes = new Hono<AppEnv>()

/** Returns the statements since the last call. */
webhookRoutes.get('/bench/statements', (c) => {
  const taken = statements
  statements = {}
  return c.json(taken)
})

/** Publishes an event as a mutation does, without other rows: commits one statement, then wakes the senders. */
webhookRoutes.get('/bench/publish', async (c) => {
  const ctx = createCtx({ bindings: c.env, waitUntil: (work) => c.executionCtx.waitUntil(work) })
  const { id = '', slug = '', ref = '' } = c.req.query()
  const endpoints = await publish(
    ctx.db,
    {
      organization: { id, slug },
      projectRef: ref,
      type: 'v1.project.status.changed',
      fields: { previous_status: 'COMING_UP', current_status: 'ACTIVE_HEALTHY' },
    },
    { actorUserId: undefined, now: ctx.databaseNow },
  )
  ctx.waitUntil(wakeSenders(ctx, endpoints))
  return c.text('ok')
})

/** Enqueues the message that wakes the sender of one endpoint. */
webhookRoutes.get('/bench/wake', async (c) => {
  const ctx = createCtx({ bindings: c.env, waitUntil: (work) => c.executionCtx.waitUntil(work) })
  await send(ctx, [{ type: 'webhook', endpointId: c.req.query('endpoint') ?? '' }])
  return c.text('ok')
})

/** Starts the sweeps, as the cron does. */
webhookRoutes.get('/bench/arm', async (c) => {
  const { WEBHOOK_SWEEPER: sweeper } = c.env
  await sweeper.get(sweeper.idFromName('only')).arm()
  return c.text('ok')
})

const HEADERS = {
  'content-type': 'application/json',
  'user-agent': 'Pilothouse-Webhooks/1.0',
  accept: '*/*',
  'webhook-timestamp': '1790000000',
  'webhook-signature': `v1,${'A'.repeat(43)}=`,
}
const PAYLOAD = JSON.stringify({
  organization_slug: 'bare',
  project_ref: 'abcdefghijklmnopqrst',
  previous_status: 'COMING_UP',
  current_status: 'ACTIVE_HEALTHY',
  actor: null,
})

/** POSTs the same bodies through the same network, `slots` at a time, without rows, signatures or logs. */
webhookRoutes.get('/bench/post', async (c) => {
  const ctx = createCtx({ bindings: c.env, waitUntil: (work) => c.executionCtx.waitUntil(work) })
  const { post } = networkPorts(ctx)
  const { url = '', count, slots } = c.req.query()
  let left = Number(count)
  const loop = async () => {
    while (left-- > 0) {
      const id = crypto.randomUUID()
      const timestamp = new Date().toISOString()
      const body = `{"id":"${id}","type":"v1.project.status.changed","timestamp":"${timestamp}","payload":${PAYLOAD}}`
      const reply = await post(url, {
        method: 'POST',
        headers: { ...HEADERS, 'webhook-id': id },
        body,
        redirect: 'manual',
      })
      await reply.text()
    }
  }
  await Promise.all(Array.from({ length: Number(slots) }, loop))
  return c.text('ok')
})
