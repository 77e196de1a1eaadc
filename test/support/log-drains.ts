import { randomUUID } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import { eq, sql } from 'drizzle-orm'
import { expect, vi } from 'vitest'
import type { Role } from '../../src/model/roles.ts'
import { type ConsoleLine, invocations, logDrainEntries, logDrains } from '../../src/model/tables/index.ts'
import { type Caller, control, newMember, newOrganization, type Reply, type TestOrganization, tick } from './api.ts'
import { newReceiver, type Received } from './receiver.ts'
import { WAIT_MS } from './wait.ts'
import { insertProject } from './webhooks.ts'

export interface DrainedProject {
  organization: TestOrganization
  ref: string
  /** A caller with quotas of their own. */
  caller: Caller
  path: string
}

export async function newDrained(given?: TestOrganization, role: Role = 'owner'): Promise<DrainedProject> {
  const organization = given ?? (await newOrganization())
  const ref = await insertProject(organization)
  const caller = await newMember(organization, role)
  return { organization, ref, caller, path: `/v2/projects/${ref}/analytics/log-drains` }
}

export const bodyOf = (attributes: Record<string, unknown>) => ({ data: { type: 'log_drain', attributes } })

export const postDrain = (
  { caller, path }: Pick<DrainedProject, 'caller' | 'path'>,
  backend_type: string,
  config: Record<string, unknown>,
  more: Record<string, unknown> = {},
): Promise<Reply> => caller.post(path, bodyOf({ name: randomUUID(), backend_type, config, ...more }))

export async function newDrain(
  project: Pick<DrainedProject, 'caller' | 'path'>,
  backend: string,
  config: Record<string, unknown>,
) {
  const reply = await postDrain(project, backend, config)
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.data.id as string
}

/** Makes a drain to a receiver of its own. */
export async function newWebhookDrain(config: Record<string, unknown> = {}, given?: DrainedProject) {
  const project = given ?? (await newDrained())
  const receiver = await newReceiver()
  const id = await newDrain(project, 'webhook', { url: receiver.url, ...config })
  return { project, receiver, id }
}

export const line = (message: string, level = 'log', at = new Date()): ConsoleLine => ({
  level,
  message,
  at: at.toISOString(),
})

/** Inserts rows as calls of a function leave them. */
export async function log(
  { ref }: DrainedProject,
  fields: Partial<typeof invocations.$inferInsert> = {},
  count = 1,
): Promise<string[]> {
  const [programId, deploymentId] = [randomUUID(), randomUUID()]
  const rows = Array.from({ length: count }, () => ({
    ...{ id: randomUUID(), projectRef: ref, kind: 'function' as const, programId, deploymentId, method: 'GET' },
    ...{ path: '/f', status: 200, ms: 5, console: [], at: new Date(), ...fields },
  }))
  await control.insert(invocations).values(rows)
  return rows.map(({ id }) => id)
}

export const textOf = ({ headers, bytes }: Received): string =>
  (headers['content-encoding'] === 'gzip' ? gunzipSync(bytes) : bytes).toString()

// biome-ignore lint/suspicious/noExplicitAny: tests check the shape of what receivers get
export const jsonOf = (received: Received): any => JSON.parse(textOf(received))

export const drainRow = async (id: string) => {
  const [row] = await control.select().from(logDrains).where(eq(logDrains.id, id))
  if (!row) throw new Error('no drain')
  return row
}

export const waiting = (id: string) => control.$count(logDrainEntries, eq(logDrainEntries.drainId, id))

/** Ends the delay that a failure has left. */
export const hurry = (id: string) =>
  control.update(logDrains).set({ nextAt: sql`now() - interval '1 s'`, leaseUntil: null }).where(eq(logDrains.id, id))

const TICK_MS = 1_000
/** The limit is long, because each tick does all the work of the cron, also for other tests. */
const WAIT = { timeout: WAIT_MS }

/** Runs the cron until the check holds. */
export async function untilSwept<T>(check: () => T | Promise<T>): Promise<T> {
  let tickedAt = 0
  return vi.waitFor(async () => {
    if (Date.now() - tickedAt > TICK_MS) {
      await tick()
      tickedAt = Date.now()
    }
    return check()
  }, WAIT)
}
