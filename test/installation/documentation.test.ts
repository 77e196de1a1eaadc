import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { cp, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, normalize, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { CHECKED_FILES, parsePage } from '../../dev/doc-blocks.ts'
import { as, baseUrl } from '../support/api.ts'
import { newPage, startBrowser } from '../support/browser.ts'

/** Makes a caller with a fresh address, so that tests do not share a quota. */
const stranger = () => as(undefined, { 'x-test-address': `test-${randomUUID()}` })

const PAGES = globSync('docs/*.md')
  .filter((file) => file !== 'docs/README.md')
  .map((file) => `/${file.slice(0, -'.md'.length)}`)

describe('GET /docs/{page}', () => {
  it('serves the start page with a link to every page and to the API reference', async () => {
    const { status, headers, body } = await stranger().get('/docs')
    expect([status, headers.get('content-type')]).toEqual([200, expect.stringContaining('text/html')])
    expect(headers.get('content-security-policy')).toContain("script-src 'self';")
    expect(body).toContain('<title>Documentation · Pilothouse</title>')
    for (const page of [...PAGES, '/docs/decisions', '/docs/api']) expect(body, page).toContain(`href="${page}"`)
  })

  it('serves each page with its title, and its files from this server', async () => {
    const caller = stranger()
    const { status, body } = await caller.get('/docs/storage')
    expect(status).toBe(200)
    expect(body).toContain('<title>Storage · Pilothouse</title>')
    expect(body).toContain('<meta name="viewport"')
    expect(body).toContain('href="/docs/auth-and-keys#signing-keys"')
    const files = Array.from(String(body).matchAll(/(?:src|rel="\w+" href)="([^"]+)"/g), ([, link]) => link as string)
    expect(files).toContain('/docs/search.js')
    const replies = await Promise.all(files.map((file) => caller.get(file)))
    expect(replies.map((reply) => reply.status)).toEqual(files.map(() => 200))
  })

  it('links only to pages and headings that exist', async () => {
    const caller = stranger()
    const served = new Map<string, string>()
    const read = async (path: string) => {
      if (!served.has(path)) served.set(path, String((await caller.get(path)).body))
      return served.get(path) ?? ''
    }
    for (const page of ['/docs', '/docs/decisions', ...PAGES]) {
      for (const [, path = '', id] of (await read(page)).matchAll(/href="(\/docs[^"#]*)?(?:#([^"]+))?"/g)) {
        if (/\.\w+$/.test(path)) continue
        const target = await read(path || page)
        expect(target, `${page} links to ${path}`).toContain('<title>')
        if (id) expect(target, `${page} links to ${path}#${id}`).toContain(`id="${id}"`)
      }
    }
  })

  it('has an index of all sections for the search', async () => {
    const { status, body } = await stranger().get('/docs/search.json')
    expect(status).toBe(200)
    const sections = typeof body === 'string' ? JSON.parse(body) : body
    expect(sections).toContainEqual({
      path: '/docs/storage#resumable-uploads',
      page: 'Storage',
      title: 'Resumable uploads',
      text: expect.stringContaining('tus-js-client'),
    })
    const pages = new Set(sections.map(({ path }: { path: string }) => path.split('#')[0]))
    for (const page of PAGES) expect(pages, page).toContain(page)
  })

  it.each(['missing', 'decisions/missing', 'README', 'decisions/..%2Fstorage', 'a/b/c'])(
    'has no page %s',
    async (name) => {
      const { status, body } = await stranger().get(`/docs/${name}`)
      expect([status, body]).toEqual([404, { message: 'No such endpoint' }])
    },
  )

  it('redirects from the former address of the API reference to the present one', async () => {
    const { status, headers } = await stranger().get('/docs?version=v2')
    expect([status, headers.get('location')]).toEqual([302, '/docs/api?version=v2'])
  })

  it.each(['/docs', '/docs/storage', '/docs/decisions'])('redirects from %s/', async (path) => {
    const { status, headers } = await stranger().get(`${path}/`)
    expect([status, headers.get('location')]).toEqual([302, path])
  })

  it.each(['missing', 'decisions/missing', 'a/b/c', 'missing.js'])(
    'answers a browser at %s with a page that links to all others',
    async (name) => {
      const browser = as(undefined, { accept: 'text/html', 'x-test-address': `test-${randomUUID()}` })
      const { status, headers, body } = await browser.get(`/docs/${name}`)
      expect([status, headers.get('content-type')]).toEqual([404, expect.stringContaining('text/html')])
      expect(headers.get('content-security-policy')).toContain("script-src 'self';")
      expect(body).toContain('<h1>Page not found</h1>')
      for (const page of ['/docs', ...PAGES]) expect(body, page).toContain(`href="${page}"`)
    },
  )
})

it('a build removes the pages whose sources no longer exist', async () => {
  const root = await mkdtemp(join(tmpdir(), 'pilothouse-docs-'))
  onTestFinished(() => rm(root, { recursive: true }))
  const [folder, decisions] = ['src/management/installation/page', 'docs/decisions']
  await cp(folder, join(root, folder), { recursive: true })
  await cp('docs', join(root, 'docs'), { recursive: true })
  await symlink(resolve('node_modules'), join(root, 'node_modules'))
  const build = async () => {
    await promisify(execFile)(process.execPath, [join(root, folder, 'build.js')])
    return globSync('**/*.{html,js}', { cwd: join(root, 'dist/page') }).sort()
  }
  const names = await build()
  await writeFile(join(root, 'docs/old.md'), '# Old\n')
  await writeFile(join(root, decisions, 'old.md'), '# Old\n')
  expect(await build()).toEqual([...names, 'decisions/old.html', 'old.html'].sort())
  await rm(join(root, 'docs/old.md'))
  await rm(join(root, decisions, 'old.md'))
  expect(await build()).toEqual(names)
})

it.each(globSync('*.md'))('%s links only to files that exist', (file) => {
  const text = readFileSync(file, 'utf8')
  for (const [, link = ''] of text.matchAll(/\]\((?!https?:)([^)\s#]+)[^)]*\)/g))
    expect(existsSync(normalize(join(dirname(file), link))), link).toBe(true)
})

it.each(globSync(CHECKED_FILES))('%s has only shell blocks that `npm run docs:check` knows', (file) => {
  expect(() => parsePage(file, readFileSync(file, 'utf8'))).not.toThrow()
})

it('refuses shell blocks in which a declaration hides the failure of its command', () => {
  const pageWith = (line: string) => () => parsePage('x.md', `\`\`\`sh\n${line}\n\`\`\`\n`)
  expect(pageWith('export KEY=$(false)')).toThrow('x.md: `export KEY=$(…)` hides a failure: assign first, then export')
  expect(pageWith('export A=1 KEY="$(false)"')).toThrow('hides a failure')
  expect(pageWith('KEY=$(true)\nexport KEY')).not.toThrow()
})

describe('/docs in a browser on a phone', () => {
  let browser: Browser
  let page: Page
  const problems: string[] = []
  beforeAll(async () => {
    browser = await startBrowser()
    page = await newPage(browser, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true })
    page.on('console', (message) => message.type() === 'error' && problems.push(`${page.url()}: ${message.text()}`))
    page.on('pageerror', (error) => problems.push(`${page.url()}: ${error.message}`))
  })
  afterAll(() => browser?.close())

  /** Opens a page as a caller with a fresh address. */
  async function open(path: string): Promise<void> {
    await page.setExtraHTTPHeaders({ 'x-test-address': `test-${randomUUID()}` })
    await page.goto(new URL(path, baseUrl).href)
  }
  const widthOf = async () => page.evaluate('document.documentElement.scrollWidth')

  it('shows each page without scrolling sideways', async () => {
    const wide: string[] = []
    for (const path of ['/docs', '/docs/decisions', ...PAGES]) {
      await open(path)
      const width = await widthOf()
      if (width !== 390) wide.push(`${path}: ${width}`)
    }
    expect([wide, problems]).toEqual([[], []])
  })

  it('finds a section, and leads to it below the header', async () => {
    await open('/docs/storage')
    await page.getByRole('searchbox').fill('resumable uplods')
    const link = page.locator('#results a').first()
    await link.waitFor()
    expect([await link.textContent(), await widthOf()]).toEqual(['Storage: Resumable uploads', 390])
    const count = await page.locator('#results li').count()
    expect(await page.locator('[aria-live], [role=status]').allTextContents()).toEqual([`Results: ${count}`])
    await link.tap()
    await page.waitForURL('**/docs/storage#resumable-uploads')
    const header = await page.locator('header').boundingBox()
    const heading = await page.locator('#resumable-uploads').boundingBox()
    expect(heading?.y).toBeGreaterThanOrEqual(header?.height ?? 0)
    expect(heading?.y).toBeLessThan(844)
  })

  it('closes the results at a tap beside them', async () => {
    await open('/docs/storage')
    await page.getByRole('searchbox').fill('tus-js-client')
    const results = page.locator('#results')
    await results.waitFor()
    await page.touchscreen.tap(200, 800)
    await results.waitFor({ state: 'hidden' })
  })

  it.each(['v1', 'storage'])('renders the API reference of %s, and an operation in it', async (version) => {
    await open(`/docs/api?version=${version}`)
    await page.locator('.opblock-post .opblock-summary').first().tap()
    await page.locator('.responses-table').first().waitFor()
    expect(await page.locator('nav [aria-current]').textContent()).toBe(version)
    expect([await widthOf(), problems]).toEqual([390, []])
  })
})
