import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { json } from 'node:stream/consumers'
import pg from 'pg'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { neededResources } from '../../dev/cloud-resources.ts'
import { newDatabase } from '../support/control-databases.ts'
import { listenOnFreePort } from '../support/listen.ts'

const ACCOUNT = 'a'.repeat(32)
const QUEUES = ['project-tasks', 'webhook-deliveries', 'worker-builds'].flatMap((name) => [name, `${name}-dead`]).sort()
/** Fewer than a deployment needs, so that they are on two pages. */
const QUEUES_OF_A_PAGE = 4
const SECRETS = ['DATABASE_URL', 'ENCRYPTION_KEY', 'HOST_KEY', 'S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY']

/** The secrets that the page of the settings lists. */
const DOCUMENTED_SECRETS = Array.from(
  readFileSync('docs/configuration.md', 'utf8').matchAll(/^\| `(\w+)` \|.*\| (?:with `\w+`: )?secret\b/gm),
  ([, name = '']) => name,
)

/** Starts the part of Cloudflare's API that the real wrangler calls for secrets, queues and buckets. */
async function startCloudflare() {
  const queues = new Set<string>()
  const buckets = new Set<string>()
  const changes: string[] = []
  const state = { secrets: SECRETS, refuses: '' }

  async function answer(request: IncomingMessage): Promise<{ status?: number; result?: unknown; error?: object }> {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://cloudflare')
    const path = pathname.replace(`/client/v4/accounts/${ACCOUNT}`, '')
    if (state.refuses && path.startsWith(state.refuses))
      return { status: 403, error: { code: 10000, message: 'Authentication error' } }
    const body = request.method === 'GET' ? {} : ((await json(request)) as { queue_name?: string; name?: string })
    // `r2 bucket info` also reads statistics of the bucket.
    if (path.endsWith('/graphql')) return { result: {} }
    if (request.method !== 'GET') changes.push(`${request.method} ${path} ${body.queue_name ?? body.name}`)
    if (path.endsWith('/secrets')) return { result: state.secrets.map((name) => ({ name, type: 'secret_text' })) }
    if (path === '/queues' && request.method === 'POST') {
      queues.add(String(body.queue_name))
      return { result: { queue_name: body.queue_name, queue_id: 'id' } }
    }
    if (path === '/queues') {
      const end = Number(searchParams.get('page')) * QUEUES_OF_A_PAGE
      const counts = { producers_total_count: 0, consumers_total_count: 0 }
      const page = [...queues].slice(end - QUEUES_OF_A_PAGE, end)
      return { result: page.map((queue_name) => ({ queue_id: 'id', queue_name, ...counts })) }
    }
    if (path === '/r2/buckets') {
      buckets.add(String(body.name))
      return { result: {} }
    }
    const bucket = path.match(/^\/r2\/buckets\/([^/]+)$/)?.[1]
    if (bucket && buckets.has(bucket)) return { result: { name: bucket, creation_date: '', location: 'WEUR' } }
    if (bucket) return { status: 404, error: { code: 10006, message: 'The specified bucket does not exist.' } }
    return { status: 404, error: { code: 7003, message: `no route ${request.method} ${path}` } }
  }

  const server = createServer((request, response) => {
    answer(request).then(
      ({ status = 200, result = null, error }) => {
        response.writeHead(status, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ success: !error, result, errors: error ? [error] : [], messages: [] }))
      },
      (error) => response.writeHead(500).end(String(error)),
    )
  })
  const port = await listenOnFreePort(server)
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${port}/client/v4`
  return { url, queues, buckets, changes, state }
}

interface Fixture {
  cloudflare: Awaited<ReturnType<typeof startCloudflare>>
  /** Runs the command; `deployed` lists the uploads that wrangler received. */
  deploy(...args: string[]): Promise<{ code: number | null; output: string; deployed: string[] }>
  settings(vars: string, npmRegistry?: string): void
  tables(): Promise<number>
}

const VARS = `
HOST_URL = "https://host.example.com"
NEON_PROXY = "https://host.example.com"
DATABASE_HOST = "db.example.com"
DATABASE_PORT = "5432"
BASE_URL = "https://api.example.com"
S3_ENDPOINT = "https://${ACCOUNT}.r2.cloudflarestorage.com"
`

/** Makes settings and a Cloudflare to deploy to, which has all that a deployment needs or nothing. */
async function newFixture({ hasResources = false, databaseUrl = '' } = {}): Promise<Fixture> {
  const cloudflare = await startCloudflare()
  if (hasResources) {
    for (const name of QUEUES) cloudflare.queues.add(name)
    cloudflare.buckets.add('pilothouse')
  }
  const root = mkdtempSync(join(tmpdir(), 'pilothouse-deploy-'))
  onTestFinished(() => rmSync(root, { recursive: true }))
  for (const name of ['dev', 'docs', 'host', 'drizzle', 'node_modules', 'package.json', 'tsconfig.json']) {
    symlinkSync(resolve(name), join(root, name))
  }
  cpSync('src', join(root, 'src'), { recursive: true })
  const settings = (vars: string, npmRegistry = 'https://registry.npmjs.org') => {
    writeFileSync(join(root, 'wrangler.toml'), readFileSync('wrangler.toml', 'utf8') + vars)
    const builder = readFileSync('src/builder/wrangler.toml', 'utf8')
    writeFileSync(join(root, 'src/builder/wrangler.toml'), builder.replace('https://registry.npmjs.org', npmRegistry))
  }
  settings(VARS)
  const uploads = join(root, 'uploads')
  writeFileSync(uploads, '')
  mkdirSync(join(root, 'bin'))
  // An upload is only recorded; the real wrangler does everything else.
  const real = resolve('node_modules/.bin/wrangler')
  writeFileSync(
    join(root, 'bin/wrangler'),
    `#!/bin/sh
case "$*" in deploy*--dry-run*) exec ${real} "$@";; deploy*) echo "$*" >> ${uploads};; *) exec ${real} "$@";; esac
`,
    { mode: 0o755 },
  )
  const database = await newDatabase(inject('adminUrl'), 'deploy')
  onTestFinished(() => database.drop())
  const query = async (text: string) => {
    const client = new pg.Client({ connectionString: database.url })
    await client.connect()
    return client.query(text).finally(() => client.end())
  }
  const env = {
    ...process.env,
    PATH: `${join(root, 'bin')}:${process.env.PATH}`,
    CLOUDFLARE_API_BASE_URL: cloudflare.url,
    CLOUDFLARE_API_TOKEN: 'token',
    CLOUDFLARE_ACCOUNT_ID: ACCOUNT,
    WRANGLER_SEND_METRICS: 'false',
    WRANGLER_WRITE_LOGS: 'false',
    XDG_CONFIG_HOME: join(root, 'config'),
    DATABASE_URL: databaseUrl || database.url,
  }
  return {
    cloudflare,
    settings,
    async deploy(...args) {
      const child = spawn('node', ['dev/deploy.ts', ...args], { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] })
      let output = ''
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => (output += data))
      await once(child, 'close')
      return { code: child.exitCode, output, deployed: readFileSync(uploads, 'utf8').split('\n').slice(0, -1) }
    },
    tables: async () => {
      const { rows } = await query(
        "select count(*)::int as count from pg_tables where schemaname in ('public', 'drizzle')",
      )
      return rows[0].count
    },
  }
}

describe('npm run deploy -- --dry-run', () => {
  it('prints what it would do and changes nothing', async () => {
    const { cloudflare, deploy, tables } = await newFixture()
    cloudflare.queues.add('worker-builds')
    const { code, output, deployed } = await deploy('--dry-run')
    expect(code, output).toBe(0)
    const would = output.split('\n').filter((line) => line.startsWith('Would'))
    expect(would).toEqual([
      ...QUEUES.filter((name) => name !== 'worker-builds').map((name) => `Would create the queue ${name}`),
      'Would create the bucket pilothouse',
      'Would migrate the control database',
    ])
    expect(output.match(/--dry-run: exiting now/g)).toHaveLength(2)
    expect(cloudflare.changes).toEqual([])
    expect(await tables()).toBe(0)
    expect(deployed).toEqual([])
  })
})

describe('npm run deploy', () => {
  it('creates the missing queues and the missing bucket, once, before it migrates and uploads', async () => {
    const { cloudflare, deploy, tables } = await newFixture()
    const missing = QUEUES.slice(0, 2)
    for (const name of QUEUES.slice(2)) cloudflare.queues.add(name)
    const first = await deploy()
    expect(first.code, first.output).toBe(0)
    const created = [...missing.map((name) => `POST /queues ${name}`), 'POST /r2/buckets pilothouse']
    expect(cloudflare.changes).toEqual(created)
    expect(await tables()).toBeGreaterThan(20)
    const uploads = ['deploy --config src/builder/wrangler.toml', 'deploy --config wrangler.toml']
    expect(first.deployed).toEqual(uploads)
    const second = await deploy()
    expect(second.code, second.output).toBe(0)
    expect(cloudflare.changes).toEqual(created)
    expect(second.deployed).toEqual([...uploads, ...uploads])
  })

  it.each([
    ['/queues', 'Cannot list the queues:'],
    ['/r2', 'Cannot look up the bucket pilothouse:'],
  ])('stops if Cloudflare refuses %s, before anything is changed', async (path, message) => {
    const { cloudflare, deploy, tables } = await newFixture()
    cloudflare.state.refuses = path
    const { code, output, deployed } = await deploy()
    expect(code).toBe(1)
    expect(output).toContain(message)
    expect(output).toContain('Authentication error')
    expect([cloudflare.changes, deployed, await tables()]).toEqual([[], [], 0])
  })

  it('stops while secrets or settings are missing', async () => {
    const { cloudflare, deploy, settings, tables } = await newFixture()
    cloudflare.state.secrets = SECRETS.filter((name) => name !== 'HOST_KEY')
    const lacking = await deploy()
    expect([lacking.code, lacking.output]).toEqual([1, 'The Worker lacks secrets: wrangler secret put HOST_KEY\n'])
    cloudflare.state.secrets = SECRETS
    settings(VARS.replace(/^BASE_URL.*$/m, 'BASE_URL = "nowhere"'))
    const malformed = await deploy()
    expect(malformed.code).toBe(1)
    expect(malformed.output).toMatch(/^wrangler\.toml, \[vars\] \(docs\/configuration\.md\):\n.*BASE_URL/s)
    expect([cloudflare.changes, malformed.deployed, await tables()]).toEqual([[], [], 0])
  })
})

describe('npm run deploy checks', () => {
  it('its arguments before anything else', async () => {
    const { cloudflare, deploy, tables } = await newFixture()
    const { code, output, deployed } = await deploy('--dryrun')
    expect([code, output]).toEqual([1, 'npm run deploy does not know --dryrun: it takes --dry-run and nothing else.\n'])
    expect([cloudflare.changes, deployed, await tables()]).toEqual([[], [], 0])
  })

  it('DATABASE_URL and [vars] before it asks Cloudflare', async () => {
    const { cloudflare, deploy } = await newFixture({ databaseUrl: 'nowhere' })
    cloudflare.state.refuses = '/workers'
    const { code, output } = await deploy('--dry-run')
    expect([code, output]).toEqual([1, 'DATABASE_URL cannot be used: must begin with postgresql:// or postgres://.\n'])
    const other = await newFixture()
    other.cloudflare.state.refuses = '/workers'
    other.settings(VARS.replace(/^BASE_URL.*$/m, 'BASE_URL = "nowhere"'))
    const malformed = await other.deploy('--dry-run')
    expect(malformed.output).toBe(
      'wrangler.toml, [vars] (docs/configuration.md):\nBASE_URL=nowhere cannot be used: Invalid URL.\n',
    )
  })

  it('settings that need secrets, without knowing the values of these', async () => {
    const { cloudflare, deploy, settings } = await newFixture({ hasResources: true })
    expect(DOCUMENTED_SECRETS).toEqual(expect.arrayContaining([...SECRETS, 'METRICS_TOKEN', 'GITHUB_WEBHOOK_SECRET']))
    cloudflare.state.secrets = DOCUMENTED_SECRETS
    const arn = `arn:aws:vpc-lattice:us-east-1:123456789012:resourceconfiguration/rcfg-${'0'.repeat(17)}`
    settings(`${VARS}GITHUB_APP_ID = "1"\nPRIVATE_LINK_RESOURCE_CONFIGURATIONS = "${arn}"\n`)
    const { code, output } = await deploy()
    expect(code, output).toBe(0)
  })

  it('HOST_KEY only if the settings name a host', async () => {
    const { cloudflare, deploy, settings } = await newFixture({ hasResources: true })
    cloudflare.state.secrets = SECRETS.filter((name) => name !== 'HOST_KEY')
    settings(VARS.replaceAll(/^(HOST_URL|DATABASE_HOST|DATABASE_PORT).*$/gm, ''))
    const { code, output } = await deploy()
    expect(code, output).toBe(0)
  })

  it('empty settings as settings that are not set', async () => {
    const { cloudflare, deploy, settings } = await newFixture({ hasResources: true })
    cloudflare.state.secrets = SECRETS.filter((name) => name !== 'HOST_KEY')
    const empty = VARS.replaceAll(/^(HOST_URL|DATABASE_HOST|DATABASE_PORT).*$/gm, '$1 = ""')
    settings(`${empty}SLEEP_AFTER_MINUTES = ""\nPROJECT_DOMAIN = ""\n`)
    const { code, output } = await deploy()
    expect(code, output).toBe(0)
  })

  it('that wrangler.toml can be read', async () => {
    const { deploy, settings } = await newFixture()
    settings(`${VARS}SLEEP_AFTER_MINUTES =\n`)
    const { code, output } = await deploy('--dry-run')
    expect([code, output]).toEqual([
      1,
      expect.stringMatching(/^wrangler\.toml: Invalid TOML document: .*SLEEP_AFTER_MINUTES/s),
    ])
    settings(`${VARS}[[queues.producers]]\nbinding = "MORE"\n`)
    expect((await deploy('--dry-run')).output).toMatch(/^wrangler\.toml: .*→ at queues\.producers\[\d\]\.queue\n$/s)
  })

  it('the settings of the builder', async () => {
    const { cloudflare, deploy, settings, tables } = await newFixture()
    settings(VARS, 'nowhere')
    const { code, output, deployed } = await deploy()
    expect(code).toBe(1)
    expect(output).toMatch(/^src\/builder\/wrangler\.toml, \[vars\] .*NPM_REGISTRY_URL/s)
    expect([cloudflare.changes, deployed, await tables()]).toEqual([[], [], 0])
  })
})

describe('the bucket', () => {
  const titles = (S3_ENDPOINT: string) => neededResources({}, { S3_ENDPOINT, S3_BUCKET: 'b' })

  it('is created if it is an R2 bucket, in its jurisdiction', () => {
    expect(titles(`https://${ACCOUNT}.eu.r2.cloudflarestorage.com`)).toEqual([
      {
        title: 'bucket b',
        find: ['r2', 'bucket', 'info', 'b', '--jurisdiction', 'eu'],
        create: ['r2', 'bucket', 'create', 'b', '--jurisdiction', 'eu'],
      },
    ])
  })

  it.each(['https://s3.amazonaws.com', `https://${ACCOUNT}.r2.cloudflarestorage.com.example.com`, ''])(
    'is not touched at %j',
    (endpoint) => {
      expect(titles(endpoint)).toEqual([])
    },
  )
})
