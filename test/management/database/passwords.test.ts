import { setTimeout as delay } from 'node:timers/promises'
import { eq, sql } from 'drizzle-orm'
import { describe, expect, inject, it, vi } from 'vitest'
import { openControlDatabase } from '../../../dev/seed.ts'
import { quoteLiteral } from '../../../src/engine/names.ts'
import { projects } from '../../../src/model/tables/index.ts'
import { unseal } from '../../../src/platform/secrets/seal.ts'
import { adminClient, adminRows, onHost } from '../../instances.ts'
import { type Caller, control, newMember, newOrganization, type Reply } from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { newProject, ownerClient, PASSWORD } from '../../support/projects.ts'

const change = (caller: Caller, ref: string, password: string) =>
  caller.patch(`/v1/projects/${ref}/database/password`, { password })

async function canLogIn(ref: string, password: string): Promise<boolean> {
  const client = ownerClient(ref, { password })
  return client.connect().then(
    async () => {
      await client.end()
      return true
    },
    () => false,
  )
}

async function storedPassword(ref: string): Promise<string> {
  const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
  return unseal(inject('encryptionKey'), row?.sealedPassword ?? '', `projects/${ref}/password`)
}

describe('PATCH /v1/projects/{ref}/database/password', () => {
  it('keeps the API on the one valid password, when many requests change it at once', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    for (let round = 0; round < 2; round++) {
      const passwords = Array.from({ length: 10 }, (_, n) => `password ${round} ${n} ${crypto.randomUUID()}`)
      const replies = await Promise.all(passwords.map((password) => change(organization.owner, ref, password)))
      expect(replies.map(({ status }) => status)).toEqual(Array(10).fill(200))
      expect(await canLogIn(ref, await storedPassword(ref))).toBe(true)
    }
  })

  it('is not undone by a login of the owner that ends meanwhile', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const { owner } = organization
    await owner.put(`/v1/projects/${ref}/jit-access`, { state: 'enabled' })
    const member = await newMember(organization, 'administrator')
    const { userId } = organization
    await owner.put(`/v1/projects/${ref}/database/jit`, { user_id: userId, roles: [{ role: 'postgres' }] })
    expect(
      await owner.post(`/v1/projects/${ref}/database/jit`, { role: 'postgres', rhost: '127.0.0.1' }),
    ).toMatchObject({ status: 200 })
    const { db: blocker, close } = openControlDatabase(inject('controlUrl'))
    const password = `password ${crypto.randomUUID()}`
    let changed: Promise<unknown> | undefined
    await blocker.transaction(async (tx) => {
      // Every writer of the project's row waits now.
      await tx.execute(sql`select from projects where ref = ${ref} for no key update`)
      changed = change(member, ref, password)
      await untilWaiting()
      expect((await owner.delete(`/v1/projects/${ref}/database/jit/${userId}`)).status).toBe(200)
    })
    expect(await changed).toMatchObject({ status: 200 })
    expect(await canLogIn(ref, password)).toBe(true)
    await close()
  })

  it('is refused once a restore has begun, which would set the previous one again', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const { asked } = await control.transaction(async (tx) => {
      await tx.update(projects).set({ status: 'RESTORING' }).where(eq(projects.ref, ref))
      return untilBlocked(tx, () => change(organization.owner, ref, 'another password'))
    })
    expect(await asked).toMatchObject({ status: 409, body: { message: expect.stringContaining('RESTORING') } })
    expect([await canLogIn(ref, PASSWORD), await storedPassword(ref)]).toEqual([true, PASSWORD])
  })

  it('stays recorded if the connection is lost after Postgres has set it', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const password = `password ${crypto.randomUUID()}`
    // Each commit waits for a standby that does not exist, so its session can be terminated before the reply.
    await configure(ref, ["synchronous_standby_names = 'missing'", 'synchronous_commit = on'])
    const terminate = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
    const reply = await whileRepeating(() => adminRows(ref, terminate), change(organization.owner, ref, password))
    await configure(ref, [])
    const body = { message: expect.stringContaining('database of the project') }
    expect(reply).toMatchObject({ status: 503, body })
    expect([await canLogIn(ref, password), await storedPassword(ref)]).toEqual([true, password])
    expect((await change(organization.owner, ref, password)).status).toBe(200)
  })

  it('is not recorded if the database cannot be reached', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const before = await storedPassword(ref)
    await onHost(ref, 'pause')
    expect(await change(organization.owner, ref, 'another password')).toMatchObject({ status: 503 })
    expect(await storedPassword(ref)).toBe(before)
  })

  it('is not recorded if Postgres refuses it', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const admin = await adminClient(ref)
    await admin.query('begin; lock table pg_authid in share mode')
    const cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
    const reply = await whileRepeating(
      () => adminRows(ref, cancel),
      change(organization.owner, ref, 'another password'),
    )
    await admin.end()
    expect(reply.status).toBe(408)
    expect([await canLogIn(ref, PASSWORD), await storedPassword(ref)]).toEqual([true, PASSWORD])
  })
})

/** Writes settings into the file that `alter system`, which the host does not allow, would change. */
async function configure(ref: string, settings: string[]): Promise<void> {
  const [place] = await adminRows<{ folder: string }>(ref, `select current_setting('data_directory') as folder`)
  const lines = settings.map((setting) => quoteLiteral(setting))
  await adminRows(ref, `copy (select unnest(array[${lines}]::text[])) to '${place?.folder}/postgresql.auto.conf'`)
  await adminRows(ref, 'select pg_reload_conf()')
}

/** Repeats the work until the reply has arrived. */
async function whileRepeating(work: () => Promise<unknown>, reply: Promise<Reply>): Promise<Reply> {
  const arrived = reply.then(() => true)
  for (;;) {
    await work()
    if (await Promise.race([arrived, delay(50, false)])) return reply
  }
}

const untilWaiting = () =>
  vi.waitFor(async () => {
    const { rows } = await control.execute(
      sql`select pid from pg_stat_activity where wait_event_type = 'Lock' and query ~ '(update|from) "projects".*sealed_password|sealed_password.*from "projects"'`,
    )
    expect(rows.length).toBeGreaterThan(0)
  }, 60_000)
