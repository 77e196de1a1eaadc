import { and, eq, isNull } from 'drizzle-orm'
import pg from 'pg'
import { expect, inject, vi } from 'vitest'
import { projects } from '../../src/model/tables/index.ts'
import { baseUrl, type Caller, control } from './api.ts'
import { WAIT_MS } from './wait.ts'

interface Place {
  owner: Caller
  slug: string
}

export const PASSWORD = 'correct horse battery staple'

interface Awaited {
  /** Expects the state in the control database. */
  inDatabase(): Promise<void>
  /** Expects the state in the API. */
  inApi(): Promise<void>
  timeoutMs?: number
}

/**
 * Waits for a state. Each request to the API would count against the caller's limit, so the database is polled, and
 * the API called once. For another Worker, whose database is not known here, its API is polled, seldom enough.
 */
export async function until(caller: Caller, { inDatabase, inApi, timeoutMs = 60_000 }: Awaited): Promise<void> {
  if (caller.base !== baseUrl) return vi.waitFor(inApi, { timeout: timeoutMs, interval: 500 })
  await vi.waitFor(inDatabase, { timeout: timeoutMs })
  await inApi()
}

/** Returns undefined if there is no such project. */
async function statusOf(ref: string): Promise<string | undefined> {
  const [row] = await control
    .select({ status: projects.status })
    .from(projects)
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
  return row?.status
}

export async function createProject({ owner, slug }: Place, fields: Record<string, unknown> = {}) {
  const reply = await owner.post('/v1/projects', {
    name: `project-${crypto.randomUUID()}`,
    organization_slug: slug,
    db_pass: PASSWORD,
    ...fields,
  })
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.ref as string
}

export const untilStatus = (caller: Caller, ref: string, status: string): Promise<void> =>
  until(caller, {
    inDatabase: async () => expect(await statusOf(ref)).toBe(status),
    inApi: async () => expect((await caller.get(`/v1/projects/${ref}`)).body.status).toBe(status),
  })

export const untilGone = (caller: Caller, ref: string): Promise<void> =>
  until(caller, {
    inDatabase: async () => expect(await statusOf(ref)).toBeUndefined(),
    inApi: async () => expect((await caller.get(`/v1/projects/${ref}`)).status).toBe(404),
  })

/** Makes a project whose database accepts queries. */
export async function newProject(organization: Place, fields: Record<string, unknown> = {}) {
  const ref = await createProject(organization, fields)
  await untilStatus(organization.owner, ref, 'ACTIVE_HEALTHY')
  return ref
}

export const runSql = (caller: Caller, ref: string, query: string, more: Record<string, unknown> = {}) =>
  caller.post(`/v1/projects/${ref}/database/query`, { query, ...more })

/** A client of the project's owner that is not connected yet; a cut connection is not an error of the run. */
export function ownerClient(ref: string, more: pg.ClientConfig = {}): pg.Client {
  const client = new pg.Client({
    host: inject('databaseHost'),
    port: inject('databasePort'),
    user: `postgres.${ref}`,
    password: PASSWORD,
    database: 'postgres',
    ...more,
  })
  client.on('error', () => {})
  return client
}

/** Settles when the session has ended, for whatever reason. */
export const hasEnded = (client: pg.Client): Promise<void> =>
  vi.waitFor(() => expect(client.query('select 1')).rejects.toThrow(), { timeout: WAIT_MS, interval: 50 })
