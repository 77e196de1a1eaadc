import { randomBytes } from 'node:crypto'
import { gunzipSync, gzipSync } from 'node:zlib'
import { packTar } from 'modern-tar'
import { beforeAll, describe, expect, it } from 'vitest'
import { newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { newProject } from '../../support/projects.ts'
import { packed, type Source, saying, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

/** Makes a worker with a developer of its own, who has a separate quota. */
const newWorker = async () => workerOf(await newMember(organization, 'developer'), ref)

/** Returns the reason of a failed build that the developer sees. */
async function reasonOf(context: Source | Uint8Array<ArrayBuffer>): Promise<string> {
  const worker = await newWorker()
  const { build_state, state_reason } = await worker.ship(context)
  expect(build_state).toBe('failed')
  expect((await worker.call()).status).toBe(404)
  return state_reason
}

const answerTo = async (source: Source, text = 'here'): Promise<void> => {
  const worker = await newWorker()
  expect((await worker.ship(source)).state_reason).toBeUndefined()
  expect(await (await worker.call()).text()).toBe(text)
}

const program = (text = 'here') => `export default { fetch: () => new Response(${JSON.stringify(text)}) }`

interface Entry {
  name: string
  type?: 'file' | 'symlink' | 'link' | 'character-device' | 'fifo' | 'directory'
  text?: string
  linkname?: string
}

async function archiveOf(...entries: Entry[]): Promise<Uint8Array<ArrayBuffer>> {
  const tar = await packTar(
    entries.map(({ name, type = 'file', text = '', linkname }) => ({
      header: { name, type, size: Buffer.byteLength(text), ...(linkname && { linkname }) },
      body: text,
    })),
  )
  return new Uint8Array(gzipSync(tar))
}

describe('the entrypoint', () => {
  it.each<[string, Source]>([
    ['index.ts', { 'index.ts': `const text: string = 'here'\nexport default { fetch: () => new Response(text) }` }],
    ['src/main.mjs', { 'src/main.mjs': program() }],
    ['main of package.json', { 'package.json': '{"main":"./lib/a.js"}', 'lib/a.js': program() }],
    [
      'exports of package.json',
      {
        'package.json': '{"exports":{".":{"node":"./n.js","import":"./w.js"}},"main":"n.js"}',
        'n.js': program('no'),
        'w.js': program(),
      },
    ],
    [
      'main of wrangler.jsonc',
      {
        'wrangler.jsonc': '{ // here\n "main": "src/worker.ts", }',
        'src/worker.ts': program(),
        'index.js': program('no'),
      },
    ],
    [
      'main of wrangler.toml',
      { 'wrangler.toml': 'main = "worker.js"', 'worker.js': program(), 'package.json': '{"main":"index.js"}' },
    ],
    [
      'a main that is not there, beside one by convention',
      { 'package.json': '{"main":"index.js"}', 'index.ts': program() },
    ],
    ['one in the only folder', { 'app/index.js': program(), 'app/package.json': '{}' }],
    [
      'one in the only folder, as macOS packs it',
      { '._app': 'x', 'app/._index.js': 'x', 'app/index.js': program(), '.DS_Store': 'x' },
    ],
  ])('is found: %s', async (_, source) => {
    await answerTo(source)
  })

  it.each<[string, Source, string]>([
    ['there is none', { 'README.md': '# nothing' }, 'The source has no entrypoint: set "main"'],
    [
      'wrangler.toml names one that is not there',
      { 'wrangler.toml': 'main = "a.js"', 'index.js': program() },
      'wrangler.toml: The entrypoint "a.js" is not in the source',
    ],
    [
      'wrangler.toml asks for what is not offered',
      { 'wrangler.toml': 'main = "index.js"\n[durable_objects]\nbindings = [{ name = "A" }]', 'index.js': program() },
      'wrangler.toml: `durable_objects` is not supported for workers',
    ],
    [
      'wrangler.json asks for it, too',
      { 'wrangler.json': '{"main":"index.js","triggers":{},"define":{"A":"1"}}', 'index.js': program() },
      'wrangler.json: `define` is not supported for workers',
    ],
    [
      'wrangler.toml has vars that are not a table',
      { 'wrangler.toml': 'main = "index.js"\nvars = 7', 'index.js': program() },
      'wrangler.toml: Invalid settings',
    ],
    [
      'wrangler.toml cannot be read',
      { 'wrangler.toml': 'main = ', 'index.js': program() },
      'wrangler.toml: Invalid TOML',
    ],
    ['package.json is not JSON', { 'package.json': '{"main"', 'index.js': program() }, 'package.json:1'],
    ['there is a Dockerfile instead', { Dockerfile: 'FROM node' }, 'Dockerfiles are not supported'],
  ])('is refused if %s', async (_, source, reason) => {
    expect(await reasonOf(source)).toContain(reason)
  })
})

describe('static assets', () => {
  const settings = (assets: object, more: object = {}) => ({
    'wrangler.json': JSON.stringify({ main: 'index.js', assets, ...more }),
    'index.js': program(),
    'public/a.txt': 'a',
  })

  it.each<[string, Source, string]>([
    ['no directory is named', settings({ binding: 'A' }), 'assets.directory'],
    [
      'the directory has no files',
      settings({ directory: 'dist' }),
      'Invalid `assets.directory` "dist": the folder has no files',
    ],
    [
      'the directory is the whole source',
      settings({ directory: './' }),
      'Invalid `assets.directory` "./": must be a folder',
    ],
    [
      'the directory is outside the source',
      settings({ directory: '../public' }),
      'Invalid `assets.directory` "../public": must be a folder',
    ],
    ['html_handling is unknown', settings({ directory: 'public', html_handling: 'x' }), 'at assets.html_handling'],
    [
      'not_found_handling is unknown',
      settings({ directory: 'public', not_found_handling: '404' }),
      'at assets.not_found_handling',
    ],
    ['the binding is not a valid name', settings({ directory: 'public', binding: '1' }), 'at assets.binding'],
    [
      'the binding is a variable, too',
      settings({ directory: 'public', binding: 'A' }, { vars: { A: 1 } }),
      'Invalid `assets.binding` A: `vars` has the same name',
    ],
    [
      'a rule is not a path',
      settings({ directory: 'public', run_worker_first: ['api/*'] }),
      'must begin with / or !/   → at assets.run_worker_first[0]',
    ],
    [
      'there are too many rules',
      settings({ directory: 'public', run_worker_first: Array(101).fill('/a') }),
      'at assets.run_worker_first',
    ],
    ['another setting is there', settings({ directory: 'public', exclude: [] }), '`assets.exclude` is not supported'],
    [
      'they have headers',
      { ...settings({ directory: 'public' }), 'public/_headers': '' },
      '`_headers` is not supported',
    ],
    [
      'they redirect',
      { ...settings({ directory: 'public' }), 'public/_redirects': '' },
      '`_redirects` is not supported',
    ],
    [
      'some are ignored',
      { ...settings({ directory: 'public' }), 'public/.assetsignore': '' },
      '`.assetsignore` is not',
    ],
    [
      'their paths are too long together',
      {
        ...settings({ directory: 'public' }),
        ...Object.fromEntries(Array.from({ length: 1_500 }, (_, n) => [`public/${'a'.repeat(160)}${n}`, ''])),
      },
      'The list of static assets is larger than 256 KiB',
    ],
    [
      'they have a binding and no program',
      settings({ directory: 'public', binding: 'A' }, { main: undefined }),
      '`assets.binding` requires a program',
    ],
    [
      'no program could run first',
      settings({ directory: 'public', run_worker_first: true }, { main: undefined }),
      '`assets.run_worker_first` requires a program',
    ],
  ])('are refused if %s', async (_, source, reason) => {
    expect(await reasonOf(source)).toContain(reason)
  })

  it('are refused if the binding is a secret of the project, too', async () => {
    const project = await newProject(organization)
    const secrets = ['FILES', 'ASSETS'].map((name) => ({ name, value: 'v' }))
    expect((await organization.owner.post(`/v1/projects/${project}/secrets`, secrets)).status).toBe(201)
    const worker = workerOf(await newMember(organization, 'developer'), project)
    expect(await worker.ship(settings({ directory: 'public', binding: 'FILES' }))).toMatchObject({
      build_state: 'failed',
      state_reason: expect.stringContaining(
        'Invalid `assets.binding` FILES: a secret or variable of the project has the same name',
      ),
    })
    const withoutProgram = settings({ directory: 'public' }, { main: undefined })
    expect(await worker.ship(withoutProgram)).toMatchObject({ build_state: 'active' })
    expect(await (await worker.call('/a.txt')).text()).toBe('a')
    expect((await worker.call('/none')).status).toBe(404)
  })

  it('are refused if one is too large', async () => {
    const large = {
      name: 'public/large.bin',
      text: randomBytes(20 * 1024 * 1024)
        .toString('hex')
        .slice(0, 26 * 1024 * 1024),
    }
    const files = Object.entries(settings({ directory: 'public' })).map(([name, text]) => ({ name, text }))
    expect(await reasonOf(await archiveOf(...files, large))).toContain(
      'public/large.bin: The static asset is too large: must be at most 25 MiB',
    )
  })
})

describe('cron expressions', () => {
  const withCrons = (crons: string, index = 'export default { scheduled() {} }'): Source => ({
    'wrangler.toml': `main = "index.js"\n[triggers]\ncrons = ${crons}`,
    'index.js': index,
  })

  it.each([
    ['["* * * *"]', '`triggers.crons[0]` "* * * *" must have five fields'],
    ['["* * * * *", "60 * * * *"]', '`triggers.crons[1]` "60 * * * *" has an invalid minute: it must be 0 to 59'],
    ['["* 24 * * *"]', 'has an invalid hour'],
    ['["* * 32 * *"]', 'has an invalid day of the month'],
    ['["* * * 13 *"]', 'has an invalid month'],
    ['["* * * * 0"]', 'has an invalid weekday: it must be 1 (Sunday) to 7'],
    ['["@daily"]', 'must have five fields'],
    ['["0 0 31 2 *"]', 'never runs: no date matches it'],
    [`["${' '.repeat(100)}* * * * *"]`, 'is longer than 100 characters'],
    [JSON.stringify(Array(11).fill('* * * * *')), 'at triggers.crons'],
    ['"* * * * *"', 'at triggers.crons'],
    ['[1]', 'at triggers.crons[0]'],
    ['["* * * * *"]\ntimezone = "UTC"', '`triggers.timezone` is not supported'],
  ])('are refused: %s', async (crons, reason) => {
    expect(await reasonOf(withCrons(crons))).toContain(reason)
  })

  it('are refused without a program to call', async () => {
    expect(await reasonOf(withCrons('["* * * * *"]', program()))).toContain(
      '`triggers.crons` requires a scheduled handler: the program does not export one',
    )
  })
})

describe('a build', () => {
  it('bundles what the program imports, in other files and folders', async () => {
    await answerTo({
      'package.json': '{"type":"module","main":"src/index.ts"}',
      'src/index.ts': `import { text } from './text.ts'\nexport default { fetch: () => new Response(text as string) }`,
      'src/text.ts': `export const text = 'here'`,
    })
  })

  it('serves an exported class', async () => {
    await answerTo({
      'index.js': `import { WorkerEntrypoint } from 'cloudflare:workers'
        export default class Main extends WorkerEntrypoint {
          text = 'here'
          fetch(request) {
            this.ctx.waitUntil(Promise.resolve())
            return new Response(typeof this.env === 'object' && request.method === 'GET' ? this.text : 'no')
          }
        }`,
    })
  })

  it.each<[string, Source, RegExp]>([
    ['a syntax error', { 'index.ts': 'export default {\n  fetch( {' }, /^index\.ts:2:\d+: /],
    [
      'an import that does not exist',
      { 'src/index.ts': `import './a.ts'\nimport './gone.ts'`, 'src/a.ts': '' },
      /src\/index\.ts:2:.*gone/,
    ],
    ['a package that nobody asked for', { 'index.ts': `import 'left-out'` }, /left-out/],
    ['a crash at its start', { 'index.js': `throw new Error('no luck')` }, /no luck/],
    ['no handler', { 'index.js': 'export const a = 1' }, /fetch/],
  ])('fails for %s, with a reason to act on', async (_, source, reason) => {
    expect(await reasonOf(source)).toMatch(reason)
  })

  it('that fails keeps the earlier deployment in service, and the next one replaces it', async () => {
    const worker = await newWorker()
    const { image_version } = await worker.ship(saying('first'))
    const broken = await worker.ship({ 'index.js': 'export default {' }, { instances: 3, exposure: 'private' })
    expect(broken).toMatchObject({ build_state: 'failed', image_version, spec: { instances: 1, exposure: 'public' } })
    expect(await (await worker.call()).text()).toBe('first')
    const mended = await worker.ship(saying('second'), { instances: 2 })
    expect(mended).toMatchObject({ build_state: 'active', spec: { instances: 2 } })
    expect(mended).not.toHaveProperty('state_reason')
    expect(mended.image_version).not.toBe(image_version)
    expect(await (await worker.call()).text()).toBe('second')
  })
})

describe('an archive', () => {
  const index = { name: 'index.js', text: program() }

  it.each<[string, Entry, RegExp]>([
    ['an absolute path', { name: '/etc/passwd', text: 'x' }, /"\/etc\/passwd" in the archive: must be relative/],
    ['a path that leads out', { name: 'a/../../b', text: 'x' }, /must stay within the source/],
    ['a symbolic link', { name: 'link', type: 'symlink', linkname: '/etc/passwd' }, /a symbolic link, "link"/],
    ['a hard link', { name: 'link', type: 'link', linkname: 'index.js' }, /a hard link/],
    ['a device', { name: 'null', type: 'character-device' }, /a device/],
    ['a pipe', { name: 'pipe', type: 'fifo' }, /a pipe/],
    ['a path that is too long', { name: `${'a/'.repeat(600)}b`, text: 'x' }, /at most 1024/],
  ])('is refused for %s', async (_, entry, reason) => {
    expect(await reasonOf(await archiveOf(index, entry))).toMatch(reason)
  })

  it('may contain installed packages with their links, which are left out', async () => {
    const worker = await newWorker()
    const link: Entry = { name: 'node_modules/.bin/tool', type: 'symlink', linkname: '../tool' }
    const context = await archiveOf({ name: './', type: 'directory' }, { ...index, name: './index.js' }, link)
    expect(await worker.ship(context)).toMatchObject({ build_state: 'active' })
  })

  it('may be compressed in several parts, followed by zeros', async () => {
    const worker = await newWorker()
    const tar = gunzipSync(packed(saying('whole')))
    const parts = [gzipSync(tar.subarray(0, 700)), gzipSync(tar.subarray(700)), Buffer.alloc(1_024)]
    expect(await worker.ship(new Uint8Array(Buffer.concat(parts)))).toMatchObject({ build_state: 'active' })
    expect(await (await worker.call()).text()).toBe('whole')
  })

  it('is refused if it is invalid or damaged', async () => {
    const context = packed(saying('hello'))
    expect(await reasonOf(new Uint8Array(Buffer.from('no archive')))).toMatch(/must be an intact \.tar\.gz/)
    expect(await reasonOf(context.slice(0, context.length - 40))).toMatch(/must be an intact \.tar\.gz/)
    expect(await reasonOf(new Uint8Array(gzipSync('no tar'.repeat(1_000))))).toMatch(/must be an intact \.tar\.gz/)
  })

  extended('is refused if it unpacks to far more than its size, and the builder goes on', async () => {
    const text = '\0'.repeat(200 * 1024 * 1024)
    expect(await reasonOf(await archiveOf(index, { name: 'zeros', text }))).toMatch(/more than 32 MiB of files/)
    const leftOut = await archiveOf(index, { name: 'node_modules/zeros', text })
    expect(await reasonOf(leftOut)).toMatch(/unpacks to more than 200 times its size/)
    await answerTo({ 'index.js': program() })
  })

  it('is refused with too many files', async () => {
    const many = Array.from({ length: 2_001 }, (_, i) => ({ name: `f${i}`, text: 'x' }))
    expect(await reasonOf(await archiveOf(...many))).toMatch(/more than 2000 files/)
  })
})
