import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { readdir, readFile, readlink } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { readCommand } from '../../dev/admin/commands.ts'
import { confirm } from '../../dev/confirm.ts'
import { openControlDatabase } from '../../dev/seed.ts'
import { readSettings, warningsOf } from '../../dev/settings.ts'
import { targetDatabaseUrl } from '../../dev/target.ts'
import { parseConfig } from '../../src/config.ts'
import { as } from '../support/api.ts'
import { type Machine, newMachine, stop, WAIT } from '../support/machine.ts'
import { MINIMAL_SETTINGS } from '../support/minimal-settings.ts'

const run = promisify(execFile)

/** An address of this machine other than the one that everything else listens on, and names for clients elsewhere. */
const PUBLIC_DATABASES = {
  POSTGRES_ADDRESS: '127.0.0.2',
  DATABASE_HOST: 'db.example.com',
  DATABASE_DOMAIN: 'example.org',
}

let machine: Machine
beforeAll(async () => {
  const settings = { WEBHOOK_LOOPBACK: 'on', SQL_TIMEOUT_SECONDS: '5', ...PUBLIC_DATABASES }
  machine = await newMachine(settings, inject('begun'))
})
afterAll(() => machine.dispose())

/**
 * Returns the programs that work in the folder or were started with its path, except the workers of a Postgres
 * server; by pid.
 */
async function processesIn(folder: string): Promise<number[]> {
  const found: number[] = []
  for (const pid of (await readdir('/proc')).map(Number).filter((id) => id > 0 && id !== process.pid)) {
    const [cwd, words] = await Promise.all([
      readlink(`/proc/${pid}/cwd`).catch(() => ''),
      readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => ''),
    ])
    const isWorker = words.startsWith('postgres: ')
    if (!isWorker && (cwd.startsWith(folder) || words.includes(folder))) found.push(pid)
  }
  return found.sort((a, b) => a - b)
}

async function rowsOf(login: pg.ClientConfig, text: string): Promise<unknown[]> {
  const client = new pg.Client(login)
  await client.connect()
  return client
    .query(text)
    .then(({ rows }) => rows)
    .finally(() => client.end())
}

describe('npm start', () => {
  it('serves what it prints, keeps the data over a restart, and stops all its processes', async () => {
    const { folder, credentials, get } = machine
    await machine.stopAll()
    const first = await machine.started()
    expect(first.output()).toContain('Webhooks may be sent to this machine (WEBHOOK_LOOPBACK=on): not for production.')
    expect(first.output()).toMatch(/host +\d+\.\d s[\s\S]*worker +\d+\.\d s/)
    const keys = ['base_url', 'access_token', 'organization_slug', 'database_port', 'host_url', 's3_url']
    expect(Object.keys(credentials())).toEqual(keys)
    expect(statSync(join(folder, 'credentials.json')).mode & 0o777).toBe(0o600)
    expect(credentials().access_token).toMatch(/^sbp_[0-9a-f]{40}$/)

    const lines = first
      .output()
      .split('\n')
      .filter((line) => line.startsWith('curl '))
    expect(lines.length).toBeGreaterThanOrEqual(3)
    const replies = []
    for (const line of lines) replies.push((await run('bash', ['-c', line])).stdout)
    expect(JSON.parse(replies[0] ?? '')).toMatchObject([{ slug: credentials().organization_slug }])
    expect(JSON.parse(replies[1] ?? '')).toMatchObject({ status: 'COMING_UP' })
    expect(JSON.parse(replies[2] ?? '')).toMatchObject([{ version: expect.stringContaining('PostgreSQL 18') }])

    await vi.waitFor(
      async () => expect(await get('/health')).toMatchObject({ status: 200, body: { status: 'ok' } }),
      WAIT,
    )
    expect(await machine.sql('select pg_sleep(30)')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('longer than allowed: 5 s') },
    })
    expect((await get('/metrics')).status).toBe(404)
    const { access_token, base_url } = credentials()
    const reply = await fetch(`${base_url}/integrations/github/webhook`, { method: 'POST' })
    expect([reply.status, await reply.json()]).toEqual([404, { message: expect.stringContaining('has no GitHub App') }])
    expect(await stop(first)).toBe(0)
    await expect(fetch(credentials().base_url)).rejects.toThrow()
    expect(await processesIn(folder)).toEqual([])

    const built = join(folder, 'bundle', 'index.js')
    const { mtimeMs } = statSync(built)
    const second = await machine.started()
    expect(statSync(built).mtimeMs).toBe(mtimeMs)
    expect(credentials().access_token).toBe(access_token)
    expect(first.output().split(access_token)).toHaveLength(2)
    expect(second.output()).not.toContain(access_token)
    const owner = as(access_token, {}, credentials().base_url)
    const { body: projects } = await owner.get('/v1/projects')
    expect(projects).toMatchObject([{ name: 'first', status: 'ACTIVE_HEALTHY' }])
    const initialize = `/v1/projects/${projects[0].ref}/custom-hostname/initialize`
    expect(await owner.post(initialize, { custom_hostname: 'api.somebody.com' })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('this installation has no public host name') },
    })

    const { body: poolers } = await owner.get(`/v1/projects/${projects[0].ref}/config/database/pooler`)
    expect(poolers).toMatchObject([
      { db_host: `db.${projects[0].ref}.example.org`, db_port: Number(machine.env.POSTGRES_PORT) },
    ])
    expect(readFileSync(join(folder, 'supabase-profile.yaml'), 'utf8')).toContain('pooler_host: "example.org"')
    const host = PUBLIC_DATABASES.POSTGRES_ADDRESS
    const login = { host, port: Number(machine.env.POSTGRES_PORT), password: 'change-me-soon', database: 'postgres' }
    const ssl = { rejectUnauthorized: false, servername: `db.${projects[0].ref}.${PUBLIC_DATABASES.DATABASE_DOMAIN}` }
    for (const way of [{ user: `postgres.${projects[0].ref}` }, { user: 'postgres', ssl }])
      expect(await rowsOf({ ...login, ...way }, 'select 1 as n')).toEqual([{ n: 1 }])

    const again = machine.start()
    await once(again.child, 'exit')
    expect(again.child.exitCode).toBe(1)
    expect(again.output().trim().split('\n')).toHaveLength(1)
    expect(again.output()).toContain('in use')
    expect((await get('/v1/profile')).status).toBe(200)
  })

  it('takes over the servers that a killed start left, with all acknowledged data, and stops them', async () => {
    const { folder } = machine
    const first = await machine.running()
    const path = '/v1/projects'
    const [project] = (await machine.get(path)).body as unknown as { ref: string }[]
    expect((await machine.sql('create table kept as select 1 as n')).status).toBe(201)
    const postmasters = () =>
      ['control', project?.ref ?? ''].map((name) => {
        const pidFile = join(folder, 'host', 'instances', name, 'data', 'postmaster.pid')
        return existsSync(pidFile) ? Number(readFileSync(pidFile, 'utf8').split('\n')[0]) : undefined
      })
    const before = postmasters()
    first.child.kill('SIGKILL')
    await once(first.child, 'exit')
    // The guard ends the processes that must not outlive a start; the servers stay.
    await vi.waitFor(
      async () => expect(await processesIn(folder)).toEqual(before.toSorted((a = 0, b = 0) => a - b)),
      WAIT,
    )
    const second = await machine.started()
    expect(postmasters(), second.output()).toEqual(before)
    expect(await machine.sql('select n from kept')).toMatchObject({ status: 201, body: [{ n: 1 }] })
    expect(await stop(second)).toBe(0)
    expect(await processesIn(folder)).toEqual([])
  })

  it('prints in one line what to do when it cannot start, and leaves nothing running', async () => {
    await machine.stopAll()
    const { env, folder } = machine
    const taken = createServer().listen(Number(env.PORT), '127.0.0.1')
    await once(taken, 'listening')
    const running = machine.start()
    await once(running.child, 'exit')
    taken.close()
    expect(running.child.exitCode).toBe(1)
    expect(running.output().trim()).toBe(
      `Port ${env.PORT} (api) is in use: stop the program that listens there, or choose another with PORT=<port>.`,
    )
    expect(await processesIn(folder)).toEqual([])
  })
})

describe('an unknown argument', () => {
  it.each([
    ['start', 'npm start does not know --rest: it takes --reset, --yes, --empty-bucket and nothing else.'],
    ['dev', 'npm run dev does not know --rest: it takes no arguments.'],
  ])('is refused by %s in one line', async (program, line) => {
    const command = run('node', [`dev/${program}.ts`, '--rest'], { env: { ...process.env, ...machine.env } })
    await expect(command).rejects.toMatchObject({ code: 1, stdout: '', stderr: `${line}\n` })
  })
})

describe('settings of the Worker', () => {
  it('are passed on unchanged, without the settings of other programs', () => {
    const env = {
      WEBHOOK_DNS_URL: 'http://127.0.0.1:1',
      S3_PUBLIC_ENDPOINT: 'https://files.example.com',
      WEBHOOK_DELIVERIES: 'x',
      DATABASE_URL: 'x',
      WEBHOOK_LOOPBACK: '',
    }
    const settings = readSettings(env)
    expect(settings.vars).toEqual({
      WEBHOOK_DNS_URL: 'http://127.0.0.1:1',
      S3_PUBLIC_ENDPOINT: 'https://files.example.com',
    })
    expect(warningsOf(settings)).toEqual([])
  })
})

describe('the settings', () => {
  const own = 'postgres://x@127.0.0.1:5432/x'
  it.each([
    ['ENCRYPTION_KEY', { ENCRYPTION_KEY: Buffer.alloc(32).toString('base64') }],
    ['ENCRYPTION_KEY', { ENCRYPTION_KEY: 'k1:short' }],
    [
      'ENCRYPTION_KEY',
      { ENCRYPTION_KEY: [1, 2].map((byte) => `k1:${Buffer.alloc(32, byte).toString('base64')}`).join() },
    ],
    ['PROJECT_DOMAIN', { PROJECT_DOMAIN: 'Example.com' }],
    ['PROJECT_DOMAIN', { PROJECT_DOMAIN: '.example.com' }],
    ['PROJECT_DOMAIN', { PROJECT_DOMAIN: 'example.com:8787' }],
    ['PROJECT_DOMAIN', { PROJECT_DOMAIN: 'https://example.com' }],
    ['CLIENT_ADDRESS_HEADER', { CLIENT_ADDRESS_HEADER: 'X Forwarded For' }],
    ['CLIENT_ADDRESS_HEADER', { CLIENT_ADDRESS_HEADER: 'x-real-ip:' }],
    ['NEON_PROXY', { DATABASE_URL: own }],
    ['HOST_URL', { HOST_URL: 'a host' }],
    ['HOST_KEY', { HOST_KEY: '' }],
    ['DATABASE_PORT', { DATABASE_PORT: 'none' }],
  ])('are refused for %s: %j', (name, settings) => {
    const issues = parseConfig({ ...MINIMAL_SETTINGS, ...settings }).error?.issues
    expect(issues?.map(({ path }) => path)).toEqual([[name]])
  })

  it('have their defaults if they are empty', () => {
    const empty = { SLEEP_AFTER_MINUTES: '', WEBHOOK_ROTATION_HOURS: ' ', WEBHOOK_LOOPBACK: '', PROJECT_DOMAIN: '' }
    const defaults = { SLEEP_AFTER_MINUTES: 15, WEBHOOK_ROTATION_HOURS: 24, WEBHOOK_LOOPBACK: false }
    const { data } = parseConfig({ ...MINIMAL_SETTINGS, ...empty })
    expect(data).toMatchObject(defaults)
    expect(data?.PROJECT_DOMAIN).toBeUndefined()
  })

  it("may name the user's own Postgres with a proxy before it", () => {
    const settings = { DATABASE_URL: own, NEON_PROXY: 'http://a' }
    expect(parseConfig({ ...MINIMAL_SETTINGS, ...settings }).error).toBeUndefined()
  })
})

describe('BASE_URL', () => {
  it.each(['https://api.example.com', 'https://api.example.com/', 'https://example.com/api//'])(
    'has no slash at its end, for the Worker and for the person who starts it: %s',
    (BASE_URL) => {
      const base = BASE_URL.replace(/\/*$/, '')
      expect(parseConfig({ ...MINIMAL_SETTINGS, BASE_URL }).data?.BASE_URL).toBe(base)
      expect(readSettings({ BASE_URL }).baseUrl).toBe(base)
    },
  )
})

describe('the port of the supabase CLI', () => {
  it.each([
    [true, {}],
    [false, { POSTGRES_PORT: '5433' }],
    [false, { PORT: '5432' }],
    [false, { S3_PORT: '5432' }],
  ])('also serves databases (%s) with the settings %j', (isForCli, env) => {
    expect(readSettings(env).isForCli).toBe(isForCli)
  })
})

describe('a GitHub App', () => {
  it.each(['GITHUB_APP_ID', 'GITHUB_APP_PRIVATE_KEY', 'GITHUB_WEBHOOK_SECRET'])('is refused without %s', (missing) => {
    const app = { GITHUB_APP_ID: '1', GITHUB_APP_PRIVATE_KEY: 'k', GITHUB_WEBHOOK_SECRET: 's' }
    const issues = parseConfig({ ...MINIMAL_SETTINGS, ...app, [missing]: '' }).error?.issues
    expect(issues).toMatchObject([{ path: [missing], message: 'is missing: the GitHub App needs it' }])
    expect(parseConfig(MINIMAL_SETTINGS).error).toBeUndefined()
  })
})

describe('npm start -- --reset', () => {
  it.each([
    ['yes', undefined],
    [' yes\n', undefined],
    ['y', 'Nothing was changed.'],
    ['', 'Nothing was changed.'],
  ])('handles the answer %j at a terminal', async (answer, failure) => {
    const asked: string[] = []
    const ask = async (question: string) => {
      asked.push(question)
      return answer
    }
    const confirmed = confirm(
      { what: 'deletes all data in /x', command: 'npm start -- --reset', isConfirmed: false },
      ask,
    )
    if (failure) await expect(confirmed).rejects.toThrow(failure)
    else await confirmed
    expect(asked).toEqual(['npm start -- --reset deletes all data in /x. Type "yes" to continue: '])
  })
})

describe('npm run admin', () => {
  it('after a reset, which deletes only its own data and starts from nothing: creates, limits, lists and revokes users and tokens, sets plans and roles', async () => {
    await machine.stopAll()
    const { credentials, folder, get } = machine
    const secrets = join(folder, 'secrets.json')
    const mine = join(folder, 'mine.txt')
    writeFileSync(mine, 'mine')
    const before = readFileSync(secrets, 'utf8')
    const running = await machine.started('--reset', '--yes')
    expect((await get('/v1/projects')).body).toEqual([])
    expect(readFileSync(secrets, 'utf8')).not.toBe(before)
    expect(readFileSync(mine, 'utf8')).toBe('mine')
    const { organization_slug: slug } = credentials()

    expect(await machine.admin('user', 'create', 'ada', 'ada@example.com')).toMatch(/^user [0-9a-f-]{36}$/)
    const { db, close } = openControlDatabase(await targetDatabaseUrl(machine.env))
    const admin = async (...args: string[]) => (await readCommand(args)(db)).text
    const token = await admin(
      'token',
      'create',
      'ada',
      '--scopes',
      'organizations:read',
      '--days',
      '7',
      '--name',
      'reader',
    )
    expect((await get(`/v1/organizations/${slug}`, token)).status).toBe(404)
    await admin('member', 'set', slug, 'ada', 'developer')
    await admin('organization', 'plan', slug, 'team')
    expect((await get(`/v1/organizations/${slug}`, token)).body).toMatchObject({ plan: 'team' })
    expect(await get('/v1/projects', token)).toMatchObject({
      status: 403,
      body: { message: expect.stringContaining('projects:read') },
    })
    const owned = await admin('organization', 'create', 'Ada Ltd', '--owner', 'ada')
    expect((await get('/v1/organizations', token)).body).toHaveLength(2)
    expect(owned).toMatch(/^organization [a-z]{20}$/)

    expect(await admin('token', 'list', 'ada')).toMatch(/valid +reader +organizations:read/)
    const unseen = await admin('token', 'create', 'ada')
    expect(await admin('token', 'revoke', unseen)).toContain('revoked')
    expect((await get('/v1/profile', unseen)).status).toBe(401)

    for (const [args, text] of [
      [['token', 'create', 'nobody'], 'no user'],
      [['token', 'create', 'ada', '--scopes', 'everything'], 'everything is not a scope'],
      [['token', 'create', 'ada', '--days', '0'], '--days'],
      [['token', 'revoke', unseen], 'no such token'],
      [['organization', 'plan', slug, 'gold'], 'gold is not a plan'],
      [['member', 'set', slug, 'ada', 'king'], 'king is not a role'],
      [['member', 'set', slug, 'ada', 'owner', '--project', 'aaaaaaaaaaaaaaaaaaaa'], 'no project'],
      [['user', 'create', 'bob', 'nowhere'], 'nowhere is not an e-mail address'],
      [['what'], 'npm run admin'],
    ] as const) {
      await expect(admin(...args)).rejects.toThrow(text)
    }
    await close()
    expect(await stop(running)).toBe(0)
  })
})
