import { createHash } from 'node:crypto'
import { and, asc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { openFunctionSecret } from '../../../src/model/secrets/function.ts'
import { auditLog, functionDeletions, functionSecrets, projects } from '../../../src/model/tables/index.ts'
import { INSTALLATION_VARIABLES } from '../../../src/services/runtime/environment.ts'
import { control, newMember, newOrganization, type TestOrganization, workerLogs } from '../../support/api.ts'
import { createProject } from '../../support/projects.ts'

let organization: TestOrganization
let path: string
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await createProject(organization)
  path = `/v1/projects/${ref}/secrets`
})

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

const generation = async () => {
  const [project] = await control.select().from(projects).where(eq(projects.ref, ref))
  return project?.secretsGeneration
}

describe('the secrets of a project', () => {
  it('beyond the limit can be replaced and deleted, and no others can be added', async () => {
    const { owner } = organization
    const own = await createProject(organization)
    const names = Array.from({ length: 102 }, (_, n) => `N${n}`)
    await control
      .insert(functionSecrets)
      .values(names.map((name) => ({ projectRef: own, name, sealedValue: '', digest: '', updatedAt: new Date() })))
    const set = async (...some: string[]) =>
      (
        await owner.post(
          `/v1/projects/${own}/secrets`,
          some.map((name) => ({ name, value: 'new' })),
        )
      ).status
    expect(await set('N0', 'MORE')).toBe(400)
    expect(await set('N0', 'N1')).toBe(201)
    expect((await owner.delete(`/v1/projects/${own}/secrets`, ['N1', 'N2', 'N3'])).status).toBe(200)
    expect(await set('MORE')).toBe(201)
    expect(await set('AGAIN')).toBe(400)
  })

  it('are set, shown by their digest, replaced and deleted, and their value is never returned', async () => {
    const { owner } = organization
    expect((await owner.get(path)).body).toEqual([])
    const before = await generation()
    const value = `hidden-${crypto.randomUUID()}`
    const set = await owner.post(path, [
      { name: 'B', value: 'first' },
      { name: 'A', value: '' },
      { name: 'B', value },
    ])
    expect([set.status, set.body, set.headers.get('content-type')]).toEqual([201, '', null])
    const updated_at = expect.stringMatching(/Z$/)
    expect((await owner.get(path)).body).toEqual([
      { name: 'A', value: sha256(''), updated_at },
      { name: 'B', value: sha256(value), updated_at },
    ])
    const [row] = await control
      .select()
      .from(functionSecrets)
      .where(eq(functionSecrets.digest, sha256(value)))
    const open = (name: string) => openFunctionSecret(inject('encryptionKey'), ref, name, row?.sealedValue ?? '')
    expect(await open('B')).toBe(value)
    await expect(open('A')).rejects.toThrow()
    expect(await owner.post(path, [{ name: 'B', value: 'other' }])).toMatchObject({ status: 201 })
    expect((await owner.get(path)).body[1]).toMatchObject({ name: 'B', value: sha256('other') })
    const removed = await owner.delete(path, ['B', 'missing'])
    expect([removed.status, removed.body, removed.headers.get('content-type')]).toEqual([200, '', null])
    expect((await owner.get(path)).body).toMatchObject([{ name: 'A' }])
    expect(await generation()).toBe((before ?? 0) + 3)
    const traces = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(traces.map(({ action, detail }) => [action, detail])).toEqual(
      expect.arrayContaining([
        ['secret.create', { names: ['B', 'A'] }],
        ['secret.delete', { names: ['B'] }],
      ]),
    )
    expect(JSON.stringify([traces, await workerLogs()])).not.toContain(value)
  })

  it.each([
    ['a body that is not a list', {}, 'body'],
    ['more than 100', Array.from({ length: 101 }, (_, n) => ({ name: `N${n}`, value: '' })), 'body'],
    ['an empty name', [{ name: '', value: '' }], 'body.0.name'],
    ['a name with =', [{ name: 'A=B', value: '' }], 'body.0.name'],
    ['a name with NUL', [{ name: 'A\0', value: '' }], 'body.0.name'],
    ['a long name', [{ name: 'N'.repeat(257), value: '' }], 'body.0.name'],
    ['a long value', [{ name: 'N', value: 'v'.repeat(24_577) }], 'body.0.value'],
    ['a value with NUL', [{ name: 'N', value: '\0' }], 'body.0.value'],
    ['a missing value after a valid secret', [{ name: 'RIGHT', value: '1' }, { name: 'N' }], 'body.1.value'],
  ])('are not set by a request with %s, and the reply names the field', async (_what, body, field) => {
    const reply = await organization.owner.post(path, body)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(`${field}: `) } })
    expect(JSON.stringify((await organization.owner.get(path)).body)).not.toContain('RIGHT')
  })

  it.each([...INSTALLATION_VARIABLES, 'DENO_DEPLOYMENT_ID', 'SUPABASE_MINE'])(
    'cannot have the name %s, which is reserved for the platform',
    async (name) => {
      const reply = await organization.owner.post(path, [{ name, value: '' }])
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.0.name: must not ') } })
    },
  )

  it('leave the newest 1,000 of their deletions', async () => {
    const { owner } = organization
    const own = await createProject(organization)
    const deletions = Array.from({ length: 1_002 }, (_, n) => ({
      ...{ projectRef: own, name: `OLD${n}`, deletedAt: new Date(n * 1_000) },
      kind: n < 2 ? ('function' as const) : ('secret' as const),
    }))
    await control.insert(functionDeletions).values(deletions)
    const names = ['OLD2', 'NEW1', 'NEW2']
    const secrets = names.map((name) => ({ name, value: 'x' }))
    expect((await owner.post(`/v1/projects/${own}/secrets`, secrets)).status).toBe(201)
    expect((await owner.delete(`/v1/projects/${own}/secrets`, names)).status).toBe(200)
    const rowsOf = (kind: 'function' | 'secret') =>
      control
        .select({ name: functionDeletions.name })
        .from(functionDeletions)
        .where(and(eq(functionDeletions.projectRef, own), eq(functionDeletions.kind, kind)))
        .orderBy(asc(functionDeletions.deletedAt), asc(functionDeletions.name))
    const kept = await rowsOf('secret')
    expect(kept).toHaveLength(1_000)
    expect([kept[0], ...kept.slice(-4)].map((row) => row?.name)).toEqual(['OLD5', 'OLD1001', 'NEW1', 'NEW2', 'OLD2'])
    expect(await rowsOf('function')).toHaveLength(2)
  })

  it('do not change with an empty list', async () => {
    const { owner } = organization
    const own = `/v1/projects/${await createProject(organization)}/secrets`
    await owner.post(own, [{ name: 'A', value: '1' }])
    const { body: before } = await owner.get(own)
    expect(await owner.post(own, [])).toMatchObject({ status: 201, body: '' })
    expect(await owner.delete(own, [])).toMatchObject({ status: 200, body: '' })
    expect((await owner.get(own)).body).toEqual(before)
  })

  it('are limited to 768 KiB in total', async () => {
    const other = `/v1/projects/${await createProject(organization)}/secrets`
    const list = (from: number, count: number) =>
      Array.from({ length: count }, (_, n) => ({ name: `N${from + n}`, value: 'x'.repeat(24_576) }))
    expect(await organization.owner.post(other, list(0, 31))).toMatchObject({ status: 201 })
    expect(await organization.owner.post(other, list(31, 2))).toMatchObject({
      status: 400,
      body: { message: 'Too many secrets: value: at most 768 KiB in total' },
    })
    expect((await organization.owner.get(other)).body).toHaveLength(31)
  })

  it('are limited to 100', async () => {
    const other = `/v1/projects/${await createProject(organization)}/secrets`
    const list = (from: number, count: number) =>
      Array.from({ length: count }, (_, n) => ({ name: `N${from + n}`, value: 'x'.repeat(7_000) }))
    expect(await organization.owner.post(other, list(0, 100))).toMatchObject({ status: 201 })
    expect(await organization.owner.post(other, list(99, 2))).toMatchObject({
      status: 400,
      body: { message: 'Too many secrets: at most 100' },
    })
    expect(await organization.owner.post(other, list(99, 1))).toMatchObject({ status: 201 })
    expect((await organization.owner.get(other)).body).toHaveLength(100)
  })

  it('require the right to write secrets', async () => {
    const developer = await newMember(organization, 'developer')
    expect(await developer.post(path, [{ name: 'D', value: '' }])).toMatchObject({ status: 403 })
    expect(await developer.get(path)).toMatchObject({ status: 200 })
    expect(await (await newMember(organization, 'read-only')).get(path)).toMatchObject({ status: 403 })
    expect(await (await newOrganization()).owner.get(path)).toMatchObject({ status: 404 })
  })
})
