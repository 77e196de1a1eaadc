import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { SEALED, type SealedColumn, writeBack } from '../../dev/admin/sealed-columns.ts'
import { hostAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { seal } from '../../src/platform/secrets/seal.ts'
import { as, type Caller } from '../support/api.ts'
import { newBranch } from '../support/branches.ts'
import { bodyOf } from '../support/log-drains.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import { answer, REDIRECT_URI } from '../support/oauth.ts'
import { newProject } from '../support/projects.ts'
import { newEndpoint, patchEndpoint } from '../support/webhooks.ts'
import { type Installation, openInstallation } from '../support/wire/installation.ts'

/** An installation of its own, because everything that the database holds is sealed anew. */
let machine: Machine
let installation: Installation
let owner: Caller
let ref: string
let former: string
const next = `k2:${randomBytes(32).toString('base64')}`

function setKeys(ENCRYPTION_KEY: string): void {
  const file = join(machine.folder, 'secrets.json')
  writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), ENCRYPTION_KEY }))
}

const run = promisify(execFile)

/** Returns what a command prints that ends with exit code 1. */
const failureOf = (running: Promise<string>): Promise<string> =>
  running.then(
    (text) => expect.fail(text),
    ({ stdout }) => stdout,
  )

/** Returns the error of a start that is refused. */
const refusedStart = (): Promise<string> =>
  run('node', ['dev/start.ts'], { env: machine.env }).then(
    ({ stdout }) => expect.fail(stdout),
    ({ stderr }) => stderr,
  )

const nameOf = ({ table, column }: SealedColumn) => `${table}.${column}`

/** Returns the number of values that a key has sealed, by column, as `encryption status` prints it. */
async function sealedWith(key: string): Promise<Record<string, number>> {
  const lines = (await machine.command('encryption', 'status')).split('\n')
  return Object.fromEntries(
    lines.map((line) => [line.split(' ')[0], Number(new RegExp(` ${key} (\\d+)`).exec(line)?.[1] ?? 0)]),
  )
}

/** Returns every row of the whole database that holds a value sealed by a key, whatever its column is called. */
async function rowsWith(key: string): Promise<string[]> {
  const tables = await installation.rows<{ name: string }>(
    `select quote_ident(table_name) as name from information_schema.tables where table_schema = 'public'`,
  )
  const found = tables.map(async ({ name }) => {
    const rows = await installation.rows(`select from ${name} as t where t::text ~ '\\m${key}\\.[\\w-]{38}'`)
    return rows.map(() => name)
  })
  return (await Promise.all(found)).flat()
}

async function keys() {
  const { body } = await owner.get(`/v1/projects/${ref}/api-keys?reveal=true`)
  return (body as { name: string; api_key: string }[]).map(({ name, api_key }) => [name, api_key])
}

/** Returns the address to which the user is redirected with a token that the installation's own key has signed. */
async function approveForIdToken(): Promise<URL> {
  const registered = {
    client_name: 'x',
    redirect_uris: [REDIRECT_URI],
    scope: 'projects:read',
    grant_types: ['implicit'],
  }
  const { client_id: id, client_secret: secret } = (await owner.post('/v1/oauth/register', registered)).body
  const query = { response_type: 'id_token token', nonce: 'n' }
  const { headers } = await answer({ id, secret }, owner.token, { query, by: as(undefined, {}, owner.base) })
  return new URL(headers.get('location') ?? '')
}

beforeAll(async () => {
  machine = await newMachine({ WEBHOOK_LOOPBACK: 'on' }, inject('begun'))
  await machine.started()
  installation = openInstallation(machine)
  former = installation.encryptionKey
  const { access_token, base_url, organization_slug: slug } = machine.credentials()
  owner = as(access_token, {}, base_url)
  ref = await newProject({ owner, slug })
  const project = `/v1/projects/${ref}`
  expect(await owner.post(`${project}/secrets`, [{ name: 'OF_FUNCTIONS', value: 'a secret' }])).toMatchObject({
    status: 201,
  })
  expect(await owner.post(`${project}/api-keys`, { type: 'secret', name: 'mine' })).toMatchObject({ status: 201 })
  const key = await owner.post(`${project}/config/auth/signing-keys`, { algorithm: 'ES256' })
  expect(key).toMatchObject({ status: 201 })
  const auth = { external_github_secret: 'gh-secret', sms_vonage_api_secret: 'v0nage' }
  expect(await owner.patch(`${project}/config/auth`, auth)).toMatchObject({ status: 200 })
  await newBranch(owner, ref, { secrets: { OF_BRANCH: 'another' } })
  const hostKey = await seal(former, 'the key of a host', hostAssociatedData('far'))
  await installation.rows(
    `insert into hosts (name, url, sealed_key, database_host, database_port, region, state, added_at)
     values ('far', 'http://127.0.0.1:9', $1, '127.0.0.1', 9, 'eu-west-1', 'draining', now())`,
    [hostKey],
  )
  const place = { owner, base: `/v2/projects/${ref}/webhooks` }
  const endpoint = await newEndpoint(place, { custom_headers: { 'x-key': 'of the receiver' } })
  const signing_secret = `whsec_${randomBytes(32).toString('base64')}`
  expect(await patchEndpoint(place, endpoint, { signing_secret })).toMatchObject({ status: 200 })
  const config = { url: 'http://127.0.0.1:9/in', headers: { authorization: 'of the drain' } }
  const drain = bodyOf({ name: 'drain', backend_type: 'webhook', config })
  expect(await owner.post(`/v2/projects/${ref}/analytics/log-drains`, drain)).toMatchObject({ status: 201 })
  expect((await approveForIdToken()).hash).toContain('id_token=')
})
afterAll(async () => {
  await installation.close()
  await machine.dispose()
})

it('the list of sealed columns has every column whose name says that it is sealed', async () => {
  const columns = await installation.rows<{ name: string }>(
    `select table_name || '.' || column_name as name from information_schema.columns
      where table_schema = 'public' and column_name like '%sealed%'`,
  )
  const known = SEALED.map(nameOf)
  expect(columns.map(({ name }) => name).filter((name) => !known.includes(name))).toEqual([])
  expect(columns).not.toEqual([])
})

describe('a new encryption key', () => {
  it('takes over everything that the former key has sealed, which is not needed afterwards', async () => {
    const rootKey = (await owner.get(`/v1/projects/${ref}/pgsodium`)).body
    const before = await keys()
    const counts = await sealedWith('k1')
    expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([])
    expect(Object.keys(counts)).toEqual(SEALED.map(nameOf))
    setKeys(`${next},${former}`)
    const values = Object.values(counts).reduce((sum, count) => sum + count)
    expect(await machine.admin('encryption', 'reseal')).toBe(`values sealed with k2: ${values}`)
    expect(await sealedWith('k2')).toEqual(counts)
    expect(await rowsWith('k1')).toEqual([])
    setKeys(former)
    const lacking = 'ENCRYPTION_KEY lacks the key k2'
    await expect(machine.admin('encryption', 'status')).rejects.toMatchObject({
      code: 1,
      stdout: expect.stringContaining(`\n${lacking}: its values cannot be opened\n`),
    })
    expect(await failureOf(machine.admin('status'))).toMatch(
      new RegExp(
        `\nencryption {5}the key does not .*\n[^]*\nPROBLEM {8}${lacking}, which sealed projects/\\w+/password`,
      ),
    )
    await machine.stopAll()
    const file = join(machine.folder, 'secrets.json')
    expect(await refusedStart()).toMatch(`${file}: ${lacking}, which sealed the secrets of project `)
    setKeys(`k2:${randomBytes(32).toString('base64')}`)
    expect(await refusedStart()).toMatch(`${file}: the key k2 of ENCRYPTION_KEY does not open the secrets of project `)
    setKeys('k2')
    expect(await refusedStart()).toMatch(`${file}: Invalid ENCRYPTION_KEY: must be `)
    setKeys(next)
    await machine.started()
    expect(await machine.command('encryption', 'status')).not.toContain('lacks')
    // The exit code is 1 because of the host that does not answer.
    expect(await failureOf(machine.command('status'))).toContain('\nencryption     the key opens the secrets\n')
    expect((await owner.get(`/v1/projects/${ref}/pgsodium`)).body).toEqual(rootKey)
    expect(await keys()).toEqual(before)
    expect(await owner.post(`/v1/projects/${ref}/database/query`, { query: 'select 1 as one' })).toMatchObject({
      status: 201,
      body: [{ one: 1 }],
    })
  })

  it('has nothing left to do the second time, and is recorded each time', async () => {
    expect(await machine.command('encryption', 'reseal')).toBe('values sealed with k2: 0')
    const entries = await installation.rows(
      `select detail from audit_log where action = 'encryption.reseal' order by created_at desc limit 1`,
    )
    expect(entries).toEqual([{ detail: { key: 'k2', values: 0, failures: 0 } }])
  })

  it.each(SEALED.filter(({ type }) => type === 'text').map(({ table, column }) => [table, column]))(
    'is missed by the status if it sealed one value of %s.%s',
    async (table, column) => {
      const setKey = (key: string) =>
        installation.rows(`update ${table} set ${column} = '${key}.' || substr(${column}, 4)`)
      await setKey('k0')
      const text = await failureOf(machine.command('status'))
      await setKey('k2')
      expect(text).toContain('PROBLEM        ENCRYPTION_KEY lacks the key k0, which sealed ')
    },
  )

  it('reports values that no key opens, and leaves them unchanged', async () => {
    const [row] = await installation.rows<{ sealed: string }>(
      `update projects set sealed_password = 'k0.' || substr(sealed_password, 4) where ref = $1 returning sealed_password as sealed`,
      [ref],
    )
    const third = `k3:${randomBytes(32).toString('base64')}`
    setKeys(`${third},${next}`)
    await expect(machine.admin('encryption', 'reseal')).rejects.toMatchObject({
      code: 1,
      stdout: expect.stringMatching(
        new RegExp(
          `^values sealed with k3: \\d+\\nprojects/${ref}/password: ENCRYPTION_KEY no longer holds the key k0\\n$`,
        ),
      ),
    })
    expect(await rowsWith('k2')).toEqual([])
    const [after] = await installation.rows(`select sealed_password as sealed from projects where ref = $1`, [ref])
    expect(after).toEqual(row)
    expect(await failureOf(machine.command('status'))).toContain(
      `lacks the key k0, which sealed projects/${ref}/password`,
    )
    // The other projects can be opened, so the installation starts.
    await machine.stopAll()
    await machine.started()
  })

  it('overwrites nothing that changed since it was read', async () => {
    const [column] = SEALED
    if (!column) throw new Error('no column')
    const [row] = await installation.rows<{ ref: string; value: string }>(
      `select ref, ${column.column} as value from ${column.table} where ref = $1`,
      [ref],
    )
    const db = drizzle(installation.url)
    const rewritten = [{ row: { ref, value: 'read before' }, after: 'written', count: 1 }]
    expect(await writeBack(db, column, rewritten)).toBe(0)
    const [after] = await installation.rows(
      `select ref, ${column.column} as value from ${column.table} where ref = $1`,
      [ref],
    )
    expect(after).toEqual(row)
    await db.$client.end()
  })

  it('does not wait for locked rows', async () => {
    const [column] = SEALED
    if (!column) throw new Error('no column')
    const rows = await installation.rows<{ ref: string; value: string }>(
      `select ref, ${column.column} as value from ${column.table}`,
    )
    expect(rows).toHaveLength(2)
    const locking = new pg.Client({ connectionString: installation.url })
    await locking.connect()
    await locking.query('begin')
    await locking.query('select from projects where ref = $1 for update', [ref])
    const db = drizzle(installation.url)
    const rewritten = rows.map((row) => ({ row, after: row.value, count: 1 }))
    expect(await writeBack(db, column, rewritten)).toBe(1)
    await locking.query('rollback')
    expect(await writeBack(db, column, rewritten)).toBe(2)
    await locking.end()
    await db.$client.end()
  })
})

it.each([
  ['', 'Invalid ENCRYPTION_KEY: must be'],
  ['k1:short', 'Invalid ENCRYPTION_KEY: must be'],
])('the key %j is refused', async (key, text) => {
  setKeys(key)
  await expect(machine.command('encryption', 'reseal')).rejects.toThrow(text)
})
