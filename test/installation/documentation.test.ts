import { randomUUID } from 'node:crypto'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, it } from 'vitest'
import { as } from '../support/api.ts'

/** Makes a caller with a fresh address, so that tests do not share a quota. */
const stranger = () => as(undefined, { 'x-test-address': `test-${randomUUID()}` })

const PAGES = globSync('docs/*.md').map((file) => `/docs/${file.slice('docs/'.length, -'.md'.length)}`)

describe('GET /docs/{page}', () => {
  it('serves the start page with a link to every page and to the API reference', async () => {
    const { status, headers, body } = await stranger().get('/docs')
    expect([status, headers.get('content-type')]).toEqual([200, expect.stringContaining('text/html')])
    expect(headers.get('content-security-policy')).toContain("script-src 'self';")
    expect(body).toContain('<title>Documentation · Pilothouse</title>')
    for (const page of [...PAGES.filter((path) => path !== '/docs/README'), '/docs/decisions', '/docs/api'])
      expect(body, page).toContain(`href="${page}"`)
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
    for (const page of ['/docs', '/docs/decisions', ...PAGES.filter((path) => path !== '/docs/README')]) {
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
    for (const page of PAGES.filter((path) => path !== '/docs/README')) expect(pages, page).toContain(page)
  })

  it.each(['missing', 'decisions/missing', 'README', 'decisions/..%2Fstorage'])('has no page %s', async (name) => {
    expect((await stranger().get(`/docs/${name}`)).status).toBe(404)
  })

  it('redirects from the former address of the API reference to the present one', async () => {
    const { status, headers } = await stranger().get('/docs?version=v2')
    expect([status, headers.get('location')]).toEqual([302, '/docs/api?version=v2'])
  })
})

it.each(globSync('*.md'))('%s links only to files that exist', (file) => {
  const text = readFileSync(file, 'utf8')
  for (const [, link = ''] of text.matchAll(/\]\((?!https?:)([^)\s#]+)[^)]*\)/g))
    expect(existsSync(normalize(join(dirname(file), link))), link).toBe(true)
})
