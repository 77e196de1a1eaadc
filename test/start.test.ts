import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'

const run = promisify(execFile)
const WAIT = { timeout: 60_000, interval: 50 }

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

let folder: string
let env: NodeJS.ProcessEnv
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'pilothouse-start-'))
  const [PORT, POSTGRES_PORT, PROXY_PORT, S3_PORT] = await Promise.all(
    Array.from({ length: 4 }, async () => String(await freePort())),
  )
  const { BASE_URL: _ofVitest, ...inherited } = process.env
  env = { ...inherited, PILOTHOUSE_DATA: folder, PORT, POSTGRES_PORT, PROXY_PORT, S3_PORT }
})
const started: Running[] = []
afterEach(async () => {
  for (const running of started.splice(0)) await stop(running)
})
afterAll(() => {
  rmSync(folder, { recursive: true, force: true })
})

interface Running {
  child: ChildProcess
  output(): string
}

function start(...args: string[]): Running {
  const child = spawn('node', ['dev/start.ts', ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (data) => {
      text += data
    })
  const running = { child, output: () => text }
  started.push(running)
  return running
}

async function ready(running: Running): Promise<void> {
  await vi.waitFor(() => {
    if (running.child.exitCode !== null) throw new Error(`it ended:\n${running.output()}`)
    expect(running.output()).toContain('Pilothouse is ready')
  }, WAIT)
}

async function stop({ child }: Running): Promise<number | null> {
  if (child.exitCode !== null) return child.exitCode
  child.kill('SIGINT')
  await once(child, 'exit')
  return child.exitCode
}

interface Credentials {
  base_url: string
  access_token: string
  organization_slug: string
}
const credentials = (): Credentials => JSON.parse(readFileSync(join(folder, 'credentials.json'), 'utf8'))
const admin = async (...args: string[]) => (await run('node', ['dev/admin.ts', ...args], { env })).stdout.trim()

/** The API of this start and not of the run's own Worker. */
async function get(path: string, token = credentials().access_token) {
  const response = await fetch(new URL(path, credentials().base_url), { headers: { authorization: `Bearer ${token}` } })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

describe('npm start', () => {
  it('serves what it prints, keeps the data over a restart, and stops all of itself', async () => {
    const first = start()
    await ready(first)
    expect(first.output()).toMatch(/postgres +\d+\.\d s[\s\S]*worker +\d+\.\d s/)
    expect(Object.keys(credentials())).toEqual(['base_url', 'access_token', 'organization_slug'])
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
    const { access_token } = credentials()
    expect(await stop(first)).toBe(0)
    await expect(fetch(credentials().base_url)).rejects.toThrow()
    expect(existsSync(join(folder, 'postgres', 'postmaster.pid'))).toBe(false)

    const second = start()
    await ready(second)
    expect(credentials().access_token).toBe(access_token)
    expect((await get('/v1/projects')).body).toMatchObject([{ name: 'first', status: 'ACTIVE_HEALTHY' }])

    const again = start()
    await once(again.child, 'exit')
    expect(again.child.exitCode).toBe(1)
    expect(again.output().trim().split('\n')).toHaveLength(1)
    expect(again.output()).toContain('in use')
    expect((await get('/v1/profile')).status).toBe(200)
    expect(await stop(second)).toBe(0)
  }, 120_000)

  it('says in one line what to do when it cannot start, and leaves nothing running', async () => {
    const taken = createServer().listen(Number(env.PORT), '127.0.0.1')
    await once(taken, 'listening')
    const running = start()
    await once(running.child, 'exit')
    taken.close()
    expect(running.child.exitCode).toBe(1)
    expect(running.output().trim()).toBe(
      `Port ${env.PORT} (api) is in use: stop the program that listens there, or choose another with PORT=<port>.`,
    )
    expect(existsSync(join(folder, 'postgres', 'postmaster.pid'))).toBe(false)
  })
})

describe('npm run admin', () => {
  it('creates users and tokens, limits, lists and revokes them, sets plans and roles', async () => {
    const running = start('--reset')
    await ready(running)
    expect((await get('/v1/projects')).body).toEqual([])
    const { organization_slug: slug } = credentials()

    await admin('user', 'create', 'ada', 'ada@example.com')
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
      [['token', 'create', 'ada', '--scopes', 'everything'], 'everything is no scope'],
      [['token', 'create', 'ada', '--days', '0'], '--days'],
      [['token', 'revoke', unseen], 'no such token'],
      [['organization', 'plan', slug, 'gold'], 'gold is no plan'],
      [['member', 'set', slug, 'ada', 'king'], 'king is no role'],
      [['member', 'set', slug, 'ada', 'owner', '--project', 'aaaaaaaaaaaaaaaaaaaa'], 'no project'],
      [['user', 'create', 'bob', 'nowhere'], 'no e-mail'],
      [['what'], 'npm run admin'],
    ] as const) {
      await expect(admin(...args)).rejects.toMatchObject({
        code: 1,
        stderr: expect.stringMatching(new RegExp(text.replace('no e-mail', 'e-mail'))),
      })
    }
    expect(await stop(running)).toBe(0)
  }, 120_000)
})
