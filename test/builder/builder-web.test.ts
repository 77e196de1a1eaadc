import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { extended } from '../support/extended.ts'
import { type BuilderProcess, startBuilder, startBuilderProcess } from './client.ts'
import { defaultOf } from './run.ts'
import { startWeb, type Web } from './web.ts'

let web: Web
let builder: BuilderProcess
beforeAll(async () => {
  web = await startWeb()
  builder = await startBuilderProcess({ IMPORT_LOOPBACK: 'on' })
})
afterAll(async () => {
  await builder.stop()
  await web.stop()
})

const run = async (code: string, files = {}) => defaultOf(await builder.build({ 'index.ts': code, ...files }))
const issue = async (code: string) => {
  const issues = await builder.issues({ 'index.ts': code })
  return Array.isArray(issues) ? issues[0] : issues
}

describe('a module from the web', () => {
  it('is read by its name or its type, at the end of its redirects, with its imports', async () => {
    web.pages.set('/x@latest/mod.ts', { status: 302, location: '/x@1.0.0/mod.ts' })
    web.serve(
      '/x@1.0.0/mod.ts',
      `import { deep } from './deep/mod.ts'; import data from '../data.json' with { type: 'json' }
      import q from '/absolute?raw'; const x: string = deep; export default [x, data.a, q, import.meta.url]`,
    )
    web.serve('/x@1.0.0/deep/mod.ts', `export const deep: string = 'deep'`, { type: 'application/typescript' })
    web.serve('/data.json', '{"a":1}', { type: 'application/json' })
    web.serve('/absolute?raw', 'export default 3 as number', { type: 'application/typescript; charset=utf-8' })
    expect(await run(`import x from '${web.origin}/x@latest/mod.ts'; export default x`)).toEqual([
      'deep',
      1,
      3,
      `${web.origin}/x@1.0.0/mod.ts`,
    ])
  })

  it('is mapped by the import map, and std modules are served', async () => {
    web.serve('/mod.js', `import own from 'own'; export default own`)
    const map = JSON.stringify({ imports: { own: './own.ts', 'web/': `${web.origin}/` } })
    const code = `import web from 'web/mod.js'; export default web`
    const issues = await builder.issues({ 'index.ts': code, 'deno.json': map, 'own.ts': 'export default 1' })
    expect(issues).toMatchObject([
      { message: `"own" cannot be imported from ${web.origin}/mod.js`, file: `${web.origin}/mod.js` },
    ])
    const served = `import { serve } from 'https://deno.land/std@0.168.0/http/server.ts'
      let given; globalThis.Deno = { serve: (...all) => (given = all, { finished: 1 }) }
      export default [serve(() => 1, { port: 8000 }), given[0].port, typeof given[1]]`
    expect(await run(served)).toEqual([1, 8000, 'function'])
  })

  it.each([
    ['is not there', '/gone.ts', { status: 404 }, 'No module found at'],
    ['is broken', '/broken.ts', { status: 500 }, 'answers 500'],
    ['is a page', '/page', { type: 'text/html', body: '<html>' }, 'is a web page, not a module'],
    ['redirects for ever', '/loop', { status: 302, location: '/loop' }, 'redirects more than 10 times'],
    [
      'redirects into a network',
      '/inside',
      { status: 302, location: 'http://10.0.0.1/' },
      'http://10.0.0.1/ cannot be fetched',
    ],
    ['redirects to no address', '/odd', { status: 302, location: 'file:///etc/passwd' }, 'cannot be fetched'],
    [
      'redirects to an invalid address',
      '/invalid',
      { status: 302, location: 'http://[' },
      'redirects to an invalid address',
    ],
    ['is too large', '/large.js', { body: new Uint8Array(11 * 1024 ** 2) }, 'is larger than 10 MiB'],
  ])('that %s is reported with the position of its import', async (_name, path, page, message) => {
    web.pages.set(path, page)
    expect(await issue(`\nimport '${web.origin}${path}'`)).toEqual({
      message: expect.stringContaining(message),
      file: 'index.ts',
      line: 2,
      column: 8,
    })
  })

  it('cannot import from the source', async () => {
    web.serve('/thief.ts', `export { default } from 'file:///secret.ts'`)
    const files = { 'index.ts': `import '${web.origin}/thief.ts'`, 'secret.ts': 'export default 1' }
    expect(await builder.issues(files)).toMatchObject([{ message: expect.stringContaining('cannot be imported from') }])
  })

  extended(
    'counts toward a limit',
    async () => {
      const many = Array.from({ length: 1_001 }, (_, n) => `import '${web.serve(`/many/${n}.ts`, '')}'`)
      expect(await issue(many.join('\n'))).toMatchObject({
        message: 'The program imports more than 1000 modules by address',
      })
    },
    60_000,
  )
})

describe.each([
  ['in a process of their own', startBuilderProcess],
  ['in one isolate', startBuilder],
])('concurrent builds %s', (_name, start) => {
  it('do not mix, and a caller that leaves one stops no other', async () => {
    const builder = await start({ IMPORT_LOOPBACK: 'on' })
    onTestFinished(() => builder.stop())
    for (let n = 0; n < 12; n += 1) web.serve(`/own/${n}.ts`, `export default ${n}`)
    const left = new AbortController()
    const form = new FormData()
    form.set('spec', JSON.stringify({ entrypoint: 'index.ts' }))
    form.append('file', new Blob([`import '${web.origin}/x@latest/mod.ts'`]), 'index.ts')
    const leaving = builder.post('/function', form, { signal: left.signal }).catch(() => {})
    const built = Array.from({ length: 12 }, async (_, n) => {
      const image = await builder.build({ 'index.ts': `import n from '${web.origin}/own/${n}.ts'; export default n` })
      return image.modules[image.main]
    })
    left.abort()
    await leaving
    const programs = await Promise.all(built)
    for (const [n, program] of programs.entries()) expect(JSON.stringify(program)).toContain(`_default = ${n};`)
  })
})
