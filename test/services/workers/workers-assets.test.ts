import { GetObjectCommand, ListObjectsV2Command, PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { and, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { invocations, requestCounts, workerImages } from '../../../src/model/tables/index.ts'
import { control, newMember, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { WAIT } from '../../support/machine.ts'
import { newProject } from '../../support/projects.ts'
import { exchange } from '../../support/storage.ts'
import { type Source, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

const newWorker = async (project = ref) => workerOf(await newMember(organization, 'developer'), project)

const MAIN = 'src/index.js'
const PROGRAM = `export default { fetch: (request, { ASSETS }) => {
  const { pathname } = new URL(request.url)
  return pathname.startsWith('/asset') ? ASSETS.fetch(new URL(pathname.slice('/asset'.length) || '/', request.url)) : new Response('program ' + request.method)
} }`

const { bucket: Bucket, endpoint, ...credentials } = inject('s3')
const s3 = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
const keysBelow = async (prefix: string) => {
  const { Contents = [] } = await s3.send(new ListObjectsV2Command({ Bucket, Prefix: prefix }))
  return Contents.map(({ Key = '' }) => Key.slice(prefix.length))
}

interface Settings {
  html_handling?: string
  not_found_handling?: string
  run_worker_first?: boolean | string[]
  binding?: string
}

const sourceWith = (files: Source, settings: Settings = {}, main?: string): Source => ({
  'wrangler.json': JSON.stringify({ ...(main && { main }), assets: { directory: './public', ...settings } }),
  [MAIN]: PROGRAM,
  ...Object.fromEntries(Object.entries(files).map(([path, text]) => [`public/${path}`, text])),
})

async function deployWorker(files: Source, settings?: Settings, main?: string) {
  const worker = await newWorker()
  expect(await worker.ship(sourceWith(files, settings, main))).toMatchObject({ build_state: 'active' })
  return worker
}

const PAGES = {
  ...{ 'index.html': 'home', 'page.html': 'page', 'folder/index.html': 'folder', 'both.html': 'both' },
  ...{ 'both/index.html': 'both index', taken: 'taken', 'taken.html': 'taken page' },
}

describe('static assets', () => {
  it('are served with their types, tags and lengths, and the program answers all other requests', async () => {
    const binary = 'x'.repeat(200_000)
    const files = { 'app.js': 'run()', 'a b/ü.css': 'p {}', 'data.bin': binary, plain: 'p', 'empty.txt': '' }
    const worker = await deployWorker(files, {}, MAIN)
    for (const [path, type, text] of [
      ['/app.js', 'text/javascript; charset=utf-8', 'run()'],
      ['/a%20b/%C3%BC.css?v=1', 'text/css; charset=utf-8', 'p {}'],
      ['/data.bin', 'application/octet-stream', binary],
      ['/plain', 'application/octet-stream', 'p'],
      ['/empty.txt', 'text/plain; charset=utf-8', ''],
    ] as const) {
      const answer = await worker.call(path)
      expect([answer.status, await answer.text()]).toEqual([200, text])
      expect(Object.fromEntries(answer.headers)).toMatchObject({
        'content-type': type,
        'content-length': String(text.length),
        etag: expect.stringMatching(/^"[0-9a-f]{32}"$/),
        'cache-control': 'public, max-age=0, must-revalidate',
        'accept-ranges': 'bytes',
      })
      const head = await worker.call(path, { method: 'HEAD' })
      expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([
        200,
        String(text.length),
        '',
      ])
    }
    const posted = await worker.call('/app.js', { method: 'POST', body: 'x' })
    expect([posted.status, posted.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
    expect(await (await worker.call('/none', { method: 'POST' })).text()).toBe('program POST')
  })

  it('support conditional and range requests', async () => {
    const worker = await deployWorker({ 'digits.txt': '0123456789' }, {}, MAIN)
    const whole = await worker.call('/digits.txt')
    const etag = whole.headers.get('etag') ?? ''
    const asked = async (headers: Record<string, string>) => {
      const { status, headers: answered, body } = await exchange(worker.url('/digits.txt'), { headers })
      return [status, body, answered['content-range']]
    }
    expect(await asked({ 'if-none-match': `"other", W/${etag}` })).toEqual([304, '', undefined])
    expect(await asked({ 'if-none-match': '"other"' })).toEqual([200, '0123456789', undefined])
    expect(await asked({ range: 'bytes=2-4' })).toEqual([206, '234', 'bytes 2-4/10'])
    expect(await asked({ range: 'bytes=-3' })).toEqual([206, '789', 'bytes 7-9/10'])
    expect(await asked({ range: 'bytes=8-', 'if-range': etag })).toEqual([206, '89', 'bytes 8-9/10'])
    expect(await asked({ range: 'bytes=8-', 'if-range': '"other"' })).toEqual([200, '0123456789', undefined])
    expect(await asked({ range: 'bytes=10-' })).toEqual([416, '', 'bytes */10'])
    for (const range of ['bytes=0-1,4-5', 'lines=0-1', 'bytes=first'])
      expect(await asked({ range })).toEqual([200, '0123456789', undefined])
  })

  it('expose no other file of the source or of the bucket', async () => {
    const worker = await deployWorker({ 'folder/a.txt': 'here' }, {}, MAIN)
    for (const path of [
      ...['/src/index.js', '/x/../wrangler.json', '/x/%2e%2e/wrangler.json', '/folder/..%2f..%2fwrangler.json'],
      ...[
        '/folder%2fa.txt',
        '/folder/%5c..%5c..%5cwrangler.json',
        '/%00',
        '/%',
        '/public/folder/a.txt',
        '/constructor',
      ],
    ]) {
      const { status, body } = await exchange(worker.url() + path)
      expect([path, status, body]).toEqual([path, 200, 'program GET'])
    }
    expect((await exchange(`${worker.url()}//folder/a.txt`)).body).toBe('here')
  })

  it.each<[string, Record<string, string>]>([
    [
      'auto-trailing-slash',
      {
        ...{ '/': 'home', '/index.html': '-> /', '/index': '-> /', '/page': 'page', '/page.html': '-> /page' },
        ...{
          '/page/': '-> /page',
          '/folder': '-> /folder/',
          '/folder/': 'folder',
          '/folder/index.html': '-> /folder/',
        },
        ...{ '/both': 'both', '/both/': 'both index', '/taken': 'taken', '/taken.html': 'taken page' },
      },
    ],
    [
      'force-trailing-slash',
      {
        ...{ '/': 'home', '/page': '-> /page/', '/page/': 'page', '/page.html': '-> /page/', '/folder': '-> /folder/' },
        ...{
          '/folder/': 'folder',
          '/both/': 'both index',
          '/both.html': 'both',
          '/taken': 'taken',
          '/taken/': 'taken page',
        },
      },
    ],
    [
      'drop-trailing-slash',
      {
        ...{ '/': 'home', '/index.html': '-> /', '/page': 'page', '/page/': '-> /page', '/folder': 'folder' },
        ...{ '/folder/': '-> /folder', '/both': 'both', '/both/': '-> /both', '/both/index.html': 'both index' },
      },
    ],
    [
      'none',
      {
        ...{ '/': 'program GET', '/index.html': 'home', '/page': 'program GET', '/page.html': 'page' },
        ...{ '/folder/': 'program GET', '/folder/index.html': 'folder' },
      },
    ],
  ])('are found by html_handling %s', async (html_handling, expected) => {
    const worker = await deployWorker(PAGES, { html_handling }, MAIN)
    const seen = async (path: string) => {
      const { status, headers, body } = await exchange(worker.url(`${path}?q=1`))
      if (status !== 307) return body
      const { href } = new URL(headers.location ?? '', worker.url(path))
      expect(href.endsWith('?q=1')).toBe(true)
      return `-> ${href.slice(worker.url().length, -'?q=1'.length)}`
    }
    expect(
      Object.fromEntries(await Promise.all(Object.keys(expected).map(async (path) => [path, await seen(path)]))),
    ).toEqual(expected)
  })

  it('are served below the worker if they are pages, also at its address without a slash', async () => {
    const worker = await deployWorker(PAGES, {}, MAIN)
    const { status, headers } = await exchange(`${worker.url()}?q=1`)
    expect([status, headers.location]).toEqual([307, `${worker.name}/?q=1`])
    const answer = await fetch(worker.url())
    expect([answer.url, await answer.text()]).toEqual([worker.url('/'), 'home'])
  })

  it('are pages only at the host of the project', async () => {
    const worker = await deployWorker(PAGES, {}, MAIN)
    const host = `${ref}.projects.example.com`
    const own = await exchange(new URL(`/workers/v1/${worker.name}/`, worker.url()).href, { headers: { host } })
    expect([own.body, own.headers['content-type']]).toEqual(['home', 'text/html; charset=utf-8'])
    const shared = await worker.call('/')
    expect([shared.headers.get('content-type'), shared.headers.get('content-security-policy')]).toEqual([
      'text/plain; charset=utf-8',
      expect.stringContaining('sandbox'),
    ])
  })

  it('follow not_found_handling if they are missing, without a program or for a navigation', async () => {
    const files = { 'index.html': 'home', '404.html': 'nothing', 'folder/404.html': 'nothing in folder' }
    const opened = { 'sec-fetch-mode': 'navigate' }
    const answers = async (not_found_handling: string, main?: string) => {
      const worker = await deployWorker(files, { not_found_handling }, main)
      const asked = async (path: string, headers: Record<string, string> = {}) => {
        const { status, body } = await exchange(worker.url(path), { headers })
        return [status, body]
      }
      return [await asked('/none', opened), await asked('/folder/a/none', opened), await asked('/none')]
    }
    expect(await answers('none')).toEqual([
      [404, ''],
      [404, ''],
      [404, ''],
    ])
    const pages = [
      [404, 'nothing'],
      [404, 'nothing in folder'],
    ]
    expect(await answers('404-page')).toEqual([...pages, [404, 'nothing']])
    expect(await answers('404-page', MAIN)).toEqual([...pages, [200, 'program GET']])
    const pageOnly = await deployWorker({ '404.html': 'nothing' }, { not_found_handling: '404-page' })
    for (const path of ['', '/']) {
      expect(await exchange(pageOnly.url(path))).toMatchObject({ status: 404, body: 'nothing' })
    }
    const home = [200, 'home']
    expect(await answers('single-page-application')).toEqual([home, home, home])
    expect(await answers('single-page-application', MAIN)).toEqual([home, home, [200, 'program GET']])
  })

  it('come after the program if run_worker_first says so', async () => {
    const files = { 'index.html': 'home', 'api/docs.txt': 'docs', 'api/a.txt': 'a', 'app.js': 'app' }
    const always = await deployWorker(files, { run_worker_first: true, binding: 'ASSETS' }, MAIN)
    expect(await (await always.call('/app.js')).text()).toBe('program GET')
    expect(await (await always.call('/asset/app.js')).text()).toBe('app')
    const some = await deployWorker(files, { run_worker_first: ['/api/*', '!/api/d*s.txt'] }, MAIN)
    const seen = ['/api/a.txt', '/api/docs.txt', '/api/', '/app.js'].map(async (path) => (await some.call(path)).text())
    expect(await Promise.all(seen)).toEqual(['program GET', 'docs', 'program GET', 'app'])
  })

  it('are reached by the program through their binding', async () => {
    const files = { 'index.html': 'home', 'page.html': 'page', '404.html': 'nothing', 'app.js': 'app' }
    const settings = { run_worker_first: true, binding: 'FILES', not_found_handling: '404-page' }
    const source = sourceWith(files, settings, MAIN)
    const program = `export default { async fetch({ url, method, headers }, env) {
      const asked = new Request(new URL(new URL(url).pathname, 'https://anywhere.example'), { method, headers, redirect: 'manual' })
      const { status, headers: answered, body } = await env.FILES.fetch(asked)
      return new Response(body, { status: 200, headers: { 'x-status': status, 'x-etag': answered.get('etag') ?? '', 'x-location': answered.get('location') ?? '', 'x-names': Object.keys(env).filter((name) => /FILES|ASSETS|=/.test(name)).join() } })
    } }`
    const worker = await newWorker()
    expect(await worker.ship({ ...source, [MAIN]: program })).toMatchObject({ build_state: 'active' })
    const asked = async (path: string, headers: Record<string, string> = {}) => {
      const answer = await worker.call(path, { headers })
      return { body: await answer.text(), headers: Object.fromEntries(answer.headers) }
    }
    const app = await asked('/app.js')
    expect(app).toMatchObject({ body: 'app', headers: { 'x-status': '200', 'x-names': 'FILES' } })
    const etag = app.headers['x-etag'] ?? ''
    expect(await asked('/app.js', { 'if-none-match': etag })).toMatchObject({
      body: '',
      headers: { 'x-status': '304' },
    })
    expect(await asked('/page/')).toMatchObject({ body: '', headers: { 'x-status': '307', 'x-location': '../page' } })
    expect(await asked('/none')).toMatchObject({ body: 'nothing', headers: { 'x-status': '404' } })
  })

  it('of a private worker require the service_role key', async () => {
    const worker = await newWorker()
    await worker.ship(sourceWith({ 'app.js': 'app' }, {}, MAIN), { exposure: 'private' })
    expect((await worker.call('/app.js')).status).toBe(401)
  })

  it('are counted as requests and leave no row in the log of calls', async () => {
    const project = await newProject(organization)
    const worker = await newWorker(project)
    await worker.ship(sourceWith({ 'app.js': 'app' }, {}, MAIN))
    await worker.call('/app.js')
    await worker.call('/none')
    await vi.waitFor(async () => {
      const counts = await control.select().from(requestCounts).where(eq(requestCounts.projectRef, project))
      expect(counts.reduce((sum, { requests }) => sum + requests, 0)).toBe(2)
      const rows = await control.select().from(invocations).where(eq(invocations.projectRef, project))
      expect(rows.map(({ path }) => path)).toEqual([expect.stringMatching(/none$/)])
    }, WAIT)
  })

  it('continue with a deployment of an earlier build, and are removed with their image', async () => {
    const project = await newProject(organization)
    const keys = async () =>
      (await keysBelow(`projects/${project}/workers/`)).filter((key) => !key.startsWith('uploads/'))
    const worker = await newWorker(project)
    const first = await worker.ship(sourceWith({ 'app.js': 'first' }, {}, MAIN))
    expect((await keys()).sort()).toEqual([`assets/${first.image_version}`, `images/${first.image_version}`])
    expect((await worker.deploy({ instances: 2 })).status).toBe(202)
    expect(await worker.built()).toMatchObject({ build_state: 'active', spec: { instances: 2 } })
    expect(await (await worker.call('/app.js')).text()).toBe('first')
    const second = await worker.ship(sourceWith({ 'app.js': 'second' }, {}, MAIN))
    expect(second.image_version).not.toBe(first.image_version)
    expect(await (await worker.call('/app.js')).text()).toBe('second')
    const old = and(eq(workerImages.projectRef, project), eq(workerImages.sha256, first.image_version))
    await control
      .update(workerImages)
      .set({ touchedAt: new Date(0) })
      .where(old)
    await vi.waitFor(async () => {
      await tick()
      expect((await keys()).sort()).toEqual([`assets/${second.image_version}`, `images/${second.image_version}`])
    }, WAIT)
    expect((await worker.delete()).status).toBe(204)
    await vi.waitFor(async () => expect(await keys()).toEqual([]), WAIT)
    expect((await worker.call('/app.js')).status).toBe(404)
  })
})

it('an image and its assets that are stored already are not written again', async () => {
  const project = await newProject(organization)
  const source = {
    'wrangler.json': JSON.stringify({ main: 'index.js', assets: { directory: 'public' } }),
    'index.js': `export default { fetch: () => new Response('first program') }`,
    'public/a.txt': 'first asset',
  }
  const textsOf = async (worker: ReturnType<typeof workerOf>) =>
    Promise.all(['/', '/a.txt'].map(async (path) => (await worker.call(path)).text()))
  const first = await newWorker(project)
  await first.ship(source)
  expect(await textsOf(first)).toEqual(['first program', 'first asset'])
  // Other bytes of the same size show whether the objects are written again.
  for (const key of await keysBelow(`projects/${project}/workers/`)) {
    if (!/^(images|assets)/.test(key)) continue
    const Key = `projects/${project}/workers/${key}`
    const { Body } = await s3.send(new GetObjectCommand({ Bucket, Key }))
    const text = await Body?.transformToString('latin1')
    const changed = Buffer.from(text?.replace('first', 'other') ?? '', 'latin1')
    await s3.send(new PutObjectCommand({ Bucket, Key, Body: changed }))
  }
  const second = await newWorker(project)
  await second.ship(source)
  expect(await textsOf(second)).toEqual(['other program', 'other asset'])
})
