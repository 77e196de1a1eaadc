import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { extended } from '../support/extended.ts'
import { type Builder, type Files, startBuilder } from './client.ts'
import { defaultOf } from './run.ts'
import { startWeb, type Web } from './web.ts'

let web: Web
let jsr: Web
let builder: Builder

beforeAll(async () => {
  web = await startWeb()
  jsr = await startWeb()
  builder = await startBuilder({ NPM_REGISTRY_URL: `${web.origin}/`, JSR_REGISTRY_URL: jsr.origin })
  for (const version of ['1.0.0', '1.2.0', '2.0.0', '3.0.0-rc.1', '2.1.0']) {
    await web.publish(
      'base',
      version,
      {
        'index.js': `export default 'base ${version}'`,
        'sub.js': `export default 'sub ${version}'`,
        'package-lock.json': '{}',
      },
      { type: 'module', exports: { '.': './index.js', './sub': './sub.js' } },
    )
  }
})
afterAll(async () => {
  await builder.stop()
  await web.stop()
  await jsr.stop()
})

const run = async (code: string, files: Files = {}, entrypoint = 'index.ts') =>
  defaultOf(await builder.build({ [entrypoint]: code, ...files }, { entrypoint }))
const issueOf = async (code: string, files: Files = {}) => {
  const result = await builder.issues({ 'index.ts': code, ...files })
  return Array.isArray(result) ? result[0] : result
}

describe('a version of a package', () => {
  it.each([
    ['npm:base', 'base 2.1.0'],
    ['npm:base@1', 'base 1.2.0'],
    ['npm:base@^1.0.0', 'base 1.2.0'],
    ['npm:base@1.0.0', 'base 1.0.0'],
    ['npm:base@latest', 'base 2.1.0'],
    ['npm:base@>=1 <2.1', 'base 2.0.0'],
    ['npm:/base@2.0.0/sub', 'sub 2.0.0'],
    ['npm:base@3.0.0-rc.1', 'base 3.0.0-rc.1'],
  ])('is resolved: %s', async (specifier, value) => {
    expect(await run(`import it from '${specifier}'; export default it`)).toBe(value)
  })

  it('is reported with the position of its import if it does not exist', async () => {
    expect(await issueOf(`const a = 1\n  import it from 'npm:base@9'; export default it`)).toEqual({
      message: 'npm:base has no version that satisfies "9"',
      file: 'index.ts',
      line: 2,
      column: 18,
    })
    expect(await issueOf(`export * from 'npm:base@newest'`)).toMatchObject({
      message: 'npm:base has no version or tag "newest"',
    })
    expect(await issueOf(`export * from 'npm:nowhere'`)).toMatchObject({
      message: 'The package npm:nowhere is not in its registry',
    })
    expect(await issueOf(`export * from 'npm:base/hidden'`)).toMatchObject({
      message: 'base@2.1.0 does not export "./hidden"',
    })
    expect(await issueOf(`export * from 'npm:@'`)).toMatchObject({
      message: 'Invalid package "npm:@": must be npm:name or jsr:@scope/name',
    })
  })

  it('is the same for a package and its peers', async () => {
    await web.publish(
      'plugin',
      '1.0.0',
      { 'index.js': `export { default } from 'base'` },
      {
        module: 'index.js',
        peerDependencies: { base: '>=1' },
      },
    )
    const code = `import a from 'npm:plugin'; import b from 'npm:base@1.0.0'; export default [a, b]`
    expect(await run(code)).toEqual(['base 1.0.0', 'base 1.0.0'])
  })

  it('comes from package.json for bare names, and from the lock file if one exists', async () => {
    const code = `import a from 'base'; import b from 'base/sub'; import c from 'other'; export default [a, b, c]`
    const json = JSON.stringify({ dependencies: { base: '^1.0.0', other: 'npm:base@2.0.0' } })
    expect(await run(code, { 'package.json': json })).toEqual(['base 1.2.0', 'sub 1.2.0', 'base 2.0.0'])
    const lock = JSON.stringify({ packages: { '': {}, 'node_modules/base': { version: '1.0.0' } } })
    const locked = await run(code, { 'package.json': json, 'package-lock.json': lock })
    expect(locked).toEqual(['base 1.0.0', 'sub 1.0.0', 'base 2.0.0'])
    const broken = { 'package-lock.json': '{ "packages": ', 'fixtures/package-lock.json': '['.repeat(1_000_000) }
    expect(await run(code, { 'package.json': json, ...broken })).toEqual(['base 1.2.0', 'sub 1.2.0', 'base 2.0.0'])
    const elsewhere = JSON.stringify({ dependencies: { base: 'file:../base' } })
    expect(await issueOf(code, { 'package.json': elsewhere })).toMatchObject({
      message: 'Invalid source file:../base of npm:base: must be a version in a registry',
    })
  })
})

describe('a package', () => {
  it('may have the name of a property that every object has', async () => {
    await web.publish('innocent', '1.0.0', { 'index.js': `import 'constructor'` })
    expect(await issueOf(`import 'npm:innocent'`)).toMatchObject({
      message: 'innocent@1.0.0 imports "constructor", which is not among its dependencies',
    })
  })

  extended('is unpacked within a limit, alone and together with all others', async () => {
    const text = 'a'.repeat(44 * 1024 ** 2)
    for (const name of ['large-a', 'large-b', 'large-c']) await web.publish(name, '1.0.0', { 'index.js': '', text })
    const code = `import 'npm:large-a'; import 'npm:large-b'; import 'npm:large-c'`
    expect(await issueOf(code)).toMatchObject({
      message: 'The imported packages unpack to more than 128 MiB',
      file: 'index.ts',
    })
    await web.publish('bomb', '1.0.0', { 'index.js': '', 'map.map': text + text + text })
    expect(await issueOf(`import 'npm:bomb'`)).toMatchObject({ message: 'bomb@1.0.0 is too large', file: 'index.ts' })
  })

  it('is entered by the conditions of Workers, by import and by require', async () => {
    await web.publish(
      'both',
      '1.0.0',
      {
        'node.js': `throw new Error('for node')`,
        'browser.js': `throw new Error('for browsers')`,
        'worker.mjs': `export const by = 'import'`,
        'worker.cjs': `exports.by = 'require'`,
      },
      {
        exports: {
          browser: './browser.js',
          node: './node.js',
          worker: { require: './worker.cjs', default: './worker.mjs' },
        },
      },
    )
    await web.publish(
      'asks',
      '1.0.0',
      { 'index.js': `module.exports = require('both').by` },
      {
        dependencies: { both: '*' },
      },
    )
    const code = `import { by } from 'npm:both'; import asked from 'npm:asks'; export default [by, asked]`
    expect(await run(code)).toEqual(['import', 'require'])
  })

  it('is entered as in Node if it has no entry for Workers, even if it has one for browsers', async () => {
    const files = {
      'node.js': `module.exports = [require('./part.js'), require('depd')]`,
      'part.js': `module.exports = 'of node'`,
      'browser.js': `module.exports = 'of browsers'`,
      'bundled.mjs': `export default 'of bundlers'`,
    }
    const browser = { './part.js': './browser.js', depd: false }
    const dependencies = { depd: '1' }
    const depd = { 'index.js': `new Function()`, 'browser.js': `module.exports = 'not of text'` }
    await web.publish('depd', '1.0.0', depd, { browser: 'browser.js' })
    const exports = { browser: './browser.js', node: './node.js', default: './browser.js' }
    await web.publish('exporting', '1.0.0', files, { exports, browser, dependencies })
    await web.publish('naming', '1.0.0', files, { main: 'node', module: 'bundled.mjs', browser, dependencies })
    await web.publish('bundled-only', '1.0.0', files, { module: 'bundled.mjs', browser: 'browser.js' })
    const code = `import a from 'npm:exporting'; import b from 'npm:naming'; import c from 'npm:bundled-only'; export default [a, b, c]`
    const ofNode = ['of node', 'not of text']
    expect(await run(code)).toEqual([ofNode, ofNode, 'of bundlers'])
  })

  it('may be CommonJS, with files without extensions, folders, JSON, cycles and missing files', async () => {
    await web.publish(
      'old',
      '1.0.0',
      {
        'lib/index.js': `
        const data = require('./data'); const folder = require('./folder'); const path = require('path')
        exports.early = 1
        exports.late = require('./cycle').early
        let native = 'none'
        try { native = require('native-addon') } catch (error) { native = error.code }
        exports.all = [data.a, folder, path.join('a', 'b'), native, typeof process.env, __dirname, process.env.NODE_ENV]`,
        'lib/data.json': '{"a":1}',
        'lib/folder/package.json': '{"main":"./main"}',
        'lib/folder/main.js': `module.exports = 'folder'`,
        'lib/cycle.js': `exports.early = require('./index').early`,
      },
      { main: './lib', optionalDependencies: { 'native-addon': '^1.0.0' } },
    )
    const code = `import old from 'npm:old'; export default [old.late, ...old.all]`
    expect(await run(code)).toEqual([1, 1, 'folder', 'a/b', 'MODULE_NOT_FOUND', 'object', '/', 'production'])
  })

  it('finds its optional dependencies, except those for an operating system', async () => {
    const plain = { 'index.js': `module.exports = 'there'` }
    await web.publish('plain-helper', '1.0.0', plain)
    await web.publish('mac-helper', '1.0.0', plain, { os: ['darwin'] })
    await web.publish('built-helper', '1.0.0', plain, { scripts: { install: 'node-gyp rebuild' } })
    await web.publish(
      'helped',
      '1.0.0',
      {
        'index.js': `const one = (load) => { try { return load() } catch (error) { return error.code } }
        module.exports = [one(() => require('plain-helper')), one(() => require('mac-helper')), one(() => require('built-helper')),
          one(() => require('no-helper'))]`,
      },
      { optionalDependencies: { 'plain-helper': '1', 'mac-helper': '1', 'built-helper': '1', 'no-helper': '1' } },
    )
    expect(await run(`import it from 'npm:helped'; export default it`)).toEqual([
      'there',
      ...['MODULE_NOT_FOUND', 'MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'],
    ])
  })

  it('finds its optional peers too', async () => {
    await web.publish('twice-helper', '1.0.0', { 'index.js': `module.exports = 'there'` })
    await web.publish(
      'twice',
      '1.0.0',
      { 'index.js': `module.exports = require('twice-helper')` },
      {
        dependencies: { 'twice-helper': '1' },
        peerDependencies: { 'twice-helper': '1' },
        peerDependenciesMeta: { 'twice-helper': { optional: true } },
      },
    )
    expect(await run(`import it from 'npm:twice'; export default it`)).toBe('there')
  })

  it('may require its own folder', async () => {
    const files = {
      'index.js': `exports.name = 'index'`,
      'main.js': `exports.name = 'main'`,
      'beside.js': `module.exports = require('..').name`,
      'lib/below.js': `module.exports = require('../..').name`,
    }
    const code = (
      name: string,
    ) => `import beside from 'npm:${name}/beside.js'; import below from 'npm:${name}/lib/below.js'
      export default [beside, below]`
    await web.publish('rooted', '1.0.0', files)
    expect(await run(code('rooted'))).toEqual(['index', 'index'])
    await web.publish('named', '1.0.0', files, { main: 'main' })
    expect(await run(code('named'))).toEqual(['main', 'main'])
  })

  it('is imported by default as in Node if it is CommonJS, and as in bundlers by bundled code', async () => {
    await web.publish('compiled', '1.0.0', {
      'index.js': `exports.__esModule = true; exports.default = 'default'; exports.named = 'named'`,
    })
    const code = `import it, { named } from 'compiled'; export default [typeof it, named]`
    const json = { dependencies: { compiled: '1' } }
    await web.publish('typed', '1.0.0', { 'index.js': code }, { ...json, type: 'module' })
    await web.publish('typed-below', '1.0.0', { 'esm/index.js': code, 'esm/package.json': '{"type":"module"}' }, json)
    await web.publish('bundled', '1.0.0', { 'index.js': code }, { ...json, module: 'index.js' })
    const importing = `import typed from 'npm:typed'; import below from 'npm:typed-below/esm/index.js'
      import bundled from 'npm:bundled'; import it, { named } from 'npm:compiled'; import own from './own.js'
      const late = await import('npm:compiled')
      export default [typed, below, bundled, [typeof it, named], typeof late.default, own]`
    const own = `module.exports = typeof require('npm:compiled')`
    const [all, one] = [
      ['object', 'named'],
      ['string', 'named'],
    ]
    expect(await run(importing, { 'own.js': own })).toEqual([all, all, one, all, 'object', 'object'])
  })

  it('may import from itself', async () => {
    await web.publish(
      'mapped',
      '1.0.0',
      {
        'index.js': `import inner from '#inner'; import own from 'mapped/own'; export default [inner, own]`,
        'node.js': `export default 'inner of node'`,
        'inner.js': `export default 'inner'`,
        'own.js': `export default 'own'`,
      },
      {
        exports: { '.': './index.js', './own': './own.js' },
        imports: { '#inner': { browser: './inner.js', node: './node.js', default: './inner.js' } },
      },
    )
    expect(await run(`import it from 'npm:mapped'; export default it`)).toEqual(['inner of node', 'own'])
  })

  it('of JSR is found by its own name, and depends on other packages of JSR', async () => {
    await jsr.publish('@jsr/std__text', '1.0.0', { 'mod.js': `export const text = 'text'` }, { exports: './mod.js' })
    await jsr.publish(
      '@jsr/std__page',
      '0.2.0',
      {
        'mod.js': `export default 'page'`,
        'sub/mod.js': `export { text as default } from '@jsr/std__text'`,
      },
      { exports: { '.': './mod.js', './sub': './sub/mod.js' }, dependencies: { '@jsr/std__text': '^1.0.0' } },
    )
    const code = `import a from 'jsr:@std/page@^0.2'; import b from 'jsr:/@std/page@0.2/sub'
      import 'jsr:@supabase/functions-js/edge-runtime.d.ts'; export default [a, b]`
    expect(await run(code)).toEqual(['page', 'text'])
    expect(await issueOf(`import 'jsr:@std/nowhere'`)).toMatchObject({
      message: 'The package jsr:@std/nowhere is not in its registry',
    })
  })

  it('may be compressed in several parts, followed by zeros', async () => {
    const compress = (tar: Uint8Array) =>
      Buffer.concat([gzipSync(tar.subarray(0, 700)), gzipSync(tar.subarray(700)), Buffer.alloc(512)])
    await web.publish('in-parts', '1.0.0', { 'index.js': `export default 'whole'` }, {}, compress)
    expect(await run(`export { default } from 'npm:in-parts'`)).toBe('whole')
    const other = (tar: Uint8Array) => Buffer.concat([gzipSync(tar), Buffer.from('no zeros')])
    await web.publish('in-pieces', '1.0.0', { 'index.js': '' }, {}, other)
    expect(await issueOf(`import 'npm:in-pieces'`)).toMatchObject({
      message: 'The tarball of in-pieces@1.0.0 cannot be unpacked',
    })
  })

  it('must match what its registry announces', async () => {
    await web.publish('forged', '1.0.0', { 'index.js': `export default 'honest'` })
    const [forged, base] = ['/tarballs/forged-1.0.0.tgz', '/tarballs/base-1.0.0.tgz']
    web.pages.set(forged, web.pages.get(base) ?? {})
    expect(await issueOf(`export * from 'npm:forged'`)).toMatchObject({
      message: expect.stringContaining('Integrity check failed for forged@1.0.0'),
    })
  })

  it('is reported with its own position if it imports an undeclared dependency', async () => {
    await web.publish('careless', '1.0.0', { 'index.js': `import x from 'undeclared'; export default x` })
    expect(await issueOf(`export * from 'npm:careless'`)).toEqual({
      message: 'careless@1.0.0 imports "undeclared", which is not among its dependencies',
      file: 'npm:careless@1.0.0/index.js',
      line: 1,
      column: 15,
    })
  })

  it('is reported if it imports a path that cannot be decoded, and may have files with such a path', async () => {
    await web.publish('undecodable', '1.0.0', { 'index.js': `import './%zz.js'` })
    expect(await issueOf(`import 'npm:undecodable'`)).toMatchObject({
      message: 'undecodable@1.0.0 has no file "%zz.js"',
      line: 1,
      column: 8,
    })
    const files = { '100%/index.js': `export { default } from './a.js'`, '100%/a.js': 'export default 1' }
    await web.publish('percent', '1.0.0', files, { type: 'module', main: '100%/index.js' })
    expect(await run(`import it from 'npm:percent'; export default it`)).toBe(1)
  })

  it('is fetched once, then cached', async () => {
    await web.publish('kept', '1.0.0', { 'index.js': `export default 'kept'`, 'other.js': `export default 'other'` })
    const code = `import a from 'npm:kept'; import b from 'npm:kept/other.js'; export default [a, b]`
    for (const times of [1, 2]) expect(await run(`${code} // ${times}`)).toEqual(['kept', 'other'])
    expect(web.asked.filter((path) => path.includes('kept'))).toEqual(['/kept', '/tarballs/kept-1.0.0.tgz'])
  })
})

describe('a registry', () => {
  it.each([
    ['is busy', { status: 503 }, 'answers 503'],
    ['limits us', { status: 429 }, 'answers 429'],
    ['answers with something else', { body: '<html>' }, 'Invalid registry response'],
  ])("that %s is not reported as the deployer's fault", async (_name, page, message) => {
    const name = `broken-${crypto.randomUUID()}`
    web.pages.set(`/${name}`, page)
    expect(await issueOf(`export * from 'npm:${name}'`)).toEqual({ unavailable: expect.stringContaining(message) })
  })
})
