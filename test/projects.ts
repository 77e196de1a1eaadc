import { expect, vi } from 'vitest'
import type { Caller } from './api.ts'

interface Place {
  owner: Caller
  slug: string
}

export const PASSWORD = 'correct horse battery staple'

const WAIT = { timeout: 25_000, interval: 50 }

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

export async function untilStatus(caller: Caller, ref: string, status: string): Promise<void> {
  await vi.waitFor(async () => {
    expect((await caller.get(`/v1/projects/${ref}`)).body.status).toBe(status)
  }, WAIT)
}

export async function untilGone(caller: Caller, ref: string): Promise<void> {
  await vi.waitFor(async () => expect((await caller.get(`/v1/projects/${ref}`)).status).toBe(404), WAIT)
}

/** A project whose database takes queries. */
export async function newProject(organization: Place, fields: Record<string, unknown> = {}) {
  const ref = await createProject(organization, fields)
  await untilStatus(organization.owner, ref, 'ACTIVE_HEALTHY')
  return ref
}

export const runSql = (caller: Caller, ref: string, query: string, more: Record<string, unknown> = {}) =>
  caller.post(`/v1/projects/${ref}/database/query`, { query, ...more })
