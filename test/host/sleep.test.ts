import { eq } from 'drizzle-orm'
import { expect, inject, it, vi } from 'vitest'
import { organizations, projects } from '../../src/model/tables/index.ts'
import { askHost, instanceState } from '../instances.ts'
import { control, newOrganization, tick } from '../support/api.ts'
import { putFunction } from '../support/functions.ts'
import { newProject, ownerClient, runSql } from '../support/projects.ts'
import { apiOf, newStorage } from '../support/storage.ts'

interface Shown {
  state: string
  sleep_after_seconds: number | null
}

function ask(path: string, method = 'GET'): Promise<Response> {
  const { url, key } = inject('host')
  return fetch(`${url}/host/v1/instances/${path}`, { method, headers: { authorization: `Bearer ${key}` } })
}

const instance = async (ref: string) => (await (await ask(ref)).json()) as Shown

// Both tests mostly wait for their instance to fall asleep.
it.concurrent('the sleep of an instance depends on the plan, and counts as healthy', async () => {
  const organization = await newOrganization()
  const { id, owner } = organization
  await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, id))
  const ref = await newProject(organization)
  expect(await instance(ref)).toMatchObject({ sleep_after_seconds: 15 * 60 })

  // The admin command `organization plan` makes the same change. A round of the cron stops after three failures, and
  // projects of other tests have no database: the oldest due time makes this project the first of the round.
  await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, id))
  await vi.waitFor(async () => {
    await control
      .update(projects)
      .set({ preparation: '', preparationDueAt: new Date(0) })
      .where(eq(projects.ref, ref))
    await tick()
    expect(await instance(ref)).toMatchObject({ sleep_after_seconds: 21 })
  }, 60_000)

  // Otherwise the API's own sessions, which it keeps for the next request, would have to end first.
  expect((await ask(`${ref}/restart`, 'POST')).status).toBe(204)
  await vi.waitFor(async () => expect(await instance(ref)).toMatchObject({ state: 'asleep' }), 60_000)
  const health = await owner.get(`/v1/projects/${ref}/health?services=db,storage`)
  expect(health.body).toEqual(['db', 'storage'].map((name) => ({ name, healthy: true, status: 'ACTIVE_HEALTHY' })))
  expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('ACTIVE_HEALTHY')
  expect(await instance(ref)).toMatchObject({ state: 'asleep' })
  expect((await runSql(owner, ref, 'select 1 as n')).body).toEqual([{ n: 1 }])
  expect(await instance(ref)).toMatchObject({ state: 'running' })
}, 120_000)

it.concurrent('the sleep of an instance ends with SQL, a request of the storage server, a call of a function or a connection', async () => {
  const storage = await newStorage()
  const { ref, organization, keys, url } = storage
  const { slug } = await putFunction(
    ref,
    `export default { fetch: () => fetch(${JSON.stringify(`${url}/bucket`)}, { headers: { authorization: 'Bearer ${keys.service}' } }) }`,
  )
  const ways: Record<string, () => Promise<unknown>> = {
    sql: async () => expect((await runSql(organization.owner, ref, 'select 1 as n')).body).toEqual([{ n: 1 }]),
    storage: async () =>
      expect(await apiOf(storage, keys.service).get('bucket')).toMatchObject({ status: 200, body: [] }),
    function: async () => {
      const response = await fetch(url.replace('/storage/v1', `/functions/v1/${slug}`))
      expect([response.status, await response.json()]).toEqual([200, []])
    },
    connection: async () => {
      const client = ownerClient(ref)
      await client.connect()
      await client.end()
    },
  }
  for (const [way, use] of Object.entries(ways)) {
    await askHost('PUT', `/instances/${ref}/sleep`, { after_seconds: 1 })
    await askHost('POST', `/instances/${ref}/restart`)
    await vi.waitFor(async () => expect(await instanceState(ref), way).toBe('asleep'), 60_000)
    await askHost('PUT', `/instances/${ref}/sleep`, { after_seconds: 600 })
    await use()
    expect(await instanceState(ref), way).toBe('running')
  }
})
