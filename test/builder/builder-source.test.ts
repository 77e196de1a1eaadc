import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Builder, type Files, startBuilder } from './client.ts'
import { defaultOf } from './run.ts'
import { startWeb, type Web } from './web.ts'

let web: Web
let builder: Builder
beforeAll(async () => {
  web = await startWeb()
  builder = await startBuilder({ NPM_REGISTRY_URL: web.origin, JSR_REGISTRY_URL: web.origin })
  await web.publish('view', '1.0.0', {
    'index.js': `export const h = 'h'`,
    'jsx-runtime.js': `export const jsx = (type, props) => [type, props]; export const jsxs = jsx; export const Fragment = 'all'`,
  })
})
afterAll(async () => {
  await builder.stop()
  await web.stop()
})

const run = async (files: Files, spec = {}) => defaultOf(await builder.build(files, spec))

describe('an import from the source of a function', () => {
  it('may have as many blank lines as it can hold', async () => {
    // A search that starts anew at each line would take minutes.
    const image = await builder.build({ 'index.ts': `${'\n'.repeat(400_000)}console.log(1)` })
    expect(image.main).toBe('program.js')
  })

  it('may be TypeScript, JSON, text or bytes, in other folders and in cycles', async () => {
    const files = {
      'functions/hello/index.ts': `
        import { shared } from '../_shared/mod.ts'
        import data from './data.json' with { type: 'json' }
        import plain from './data.json'
        import page from './page.html'
        import query from './query.sql'
        import note from './note.anything' with { type: 'text' }
        import bytes from './page.html' with { type: 'bytes' }
        import type { Nothing } from './types-only.ts'
        import './types.d.ts'
        enum Level { Low = 1 }
        const late = await import('./late.ts')
        const typed = shared satisfies string as string
        export default [typed, data.a, plain.a, page, query, note, [...bytes], Level.Low, late.default]`,
      'functions/_shared/mod.ts': `import { other } from './other.ts'; export const shared: string = other(); export const name = 'shared'`,
      'functions/_shared/other.ts': `import { name } from './mod.ts'; export const other = () => typeof name === 'undefined' ? 'early' : name`,
      'functions/hello/data.json': '{"a":1}',
      'functions/hello/page.html': '<p>',
      'functions/hello/query.sql': 'select 1',
      'functions/hello/note.anything': 'ñ',
      'functions/hello/late.ts': `export default 'late'`,
    }
    const image = await builder.build(
      { ...files, 'functions/_shared/other.ts': `export const other = () => 'shared'` },
      { entrypoint: './functions/hello/index.ts' },
    )
    expect(await defaultOf(image)).toEqual(['shared', 1, 1, '<p>', 'select 1', 'ñ', [60, 112, 62], 1, 'late'])
    const cycle = await builder.issues(files, { entrypoint: 'functions/hello/index.ts' })
    expect(cycle).toMatchObject({ image: { main: 'program.js' } })
  })

  it('may omit extensions and index files, as bundlers allow', async () => {
    const files = { 'a.ts': 'export default 1', 'b/index.ts': 'export default 2', 'c d.ts': 'export default 3' }
    const code = `import a from './a'; import b from './b'; import a2 from './a.js'; import c from './c%20d.ts'; export default [a, b, a2, c]`
    expect(await run({ 'index.ts': code, ...files })).toEqual([1, 2, 1, 3])
  })

  it('may be JSX, by the settings of deno.json or by its own pragma', async () => {
    const tsx = `import { h } from 'npm:view'; export default <><p id={h}/></>`
    const spec = { entrypoint: 'f/index.tsx' }
    const modern = {
      'deno.json': JSON.stringify({ compilerOptions: { jsx: 'react-jsx', jsxImportSource: 'npm:view' } }),
    }
    const expected = ['all', { children: ['p', { id: 'h' }] }]
    expect(await run({ 'f/index.tsx': tsx, ...modern }, spec)).toEqual(expected)
    expect(await run({ 'f/index.tsx': `/** @jsxRuntime automatic @jsxImportSource npm:view */ ${tsx}` }, spec)).toEqual(
      expected,
    )
    expect(await run({ 'f/index.tsx': `/** @jsxImportSource npm:view */ ${tsx}` }, spec)).toEqual(expected)
    const classic = { 'f/deno.jsonc': `{ "compilerOptions": { "jsx": "react", "jsxFactory": "make", } /* old */ }` }
    const code = `const make = (...all) => all; export default <p id="x"/>`
    expect(await run({ 'f/index.tsx': code, ...classic }, spec)).toEqual(['p', { id: 'x' }])
    const own = `/** @jsxRuntime classic @jsx make @jsxImportSource npm:view */ ${code}`
    expect(await run({ 'f/index.tsx': own }, spec)).toEqual(['p', { id: 'x' }])
  })

  it('may have fields of classes that are assigned, by the settings of deno.json', async () => {
    const code = `class Base { set a(value: number) { this.b = value + 1 } b = 0 }
      class Derived extends Base { a = 1 }
      export default new Derived().b`
    const denoJson = { 'deno.json': '{ "compilerOptions": { "useDefineForClassFields": false } }' }
    expect(await run({ 'index.ts': code })).toBe(0)
    expect(await run({ 'index.ts': code, ...denoJson })).toBe(2)
  })

  it('may be WebAssembly, as a module that can be instantiated', async () => {
    // The module is (module (func (export "answer") (result i32) i32.const 42)).
    const wasm = Buffer.from('0061736d010000000105016000017f03020100070a0106616e7377657200000a06010400412a0b', 'hex')
    const code = `import module from './answer.wasm'; export default (await WebAssembly.instantiate(module)).exports.answer()`
    expect(await run({ 'index.ts': code, 'answer.wasm': new Uint8Array(wasm) })).toBe(42)
  })

  it('knows its own address', async () => {
    const other = 'export const here = [import.meta.url, import.meta.main, import.meta.dirname]'
    const code = `import { here } from './lib/other.ts'; const text = 'import.meta.url'
      export default [import.meta.url, import.meta.main, import.meta.filename, import.meta.resolve('./x'), text, here]`
    expect(await run({ 'f/index.ts': code, 'f/lib/other.ts': other }, { entrypoint: 'f/index.ts' })).toEqual([
      'file:///f/index.ts',
      true,
      '/f/index.ts',
      'file:///f/x',
      'import.meta.url',
      ['file:///f/lib/other.ts', false, '/f/lib'],
    ])
  })

  it('knows its own address, however it writes that', async () => {
    const code = `import { url } from 'data:text/javascript,export const { url } = import.meta'
      export default [import . meta.url, import /* a */ . // b
        meta.main, url]`
    const address = 'data:text/javascript,export const { url } = import.meta'
    expect(await run({ 'index.ts': code })).toEqual(['file:///index.ts', true, address])
  })

  it('may be a data: address', async () => {
    const code = `import a from 'data:text/javascript,export default 1'; import b from 'data:application/json,{"b":2}'
      import c from 'data:application/typescript;base64,ZXhwb3J0IGRlZmF1bHQgMyBhcyBudW1iZXI='
      import d from 'data:text/javascript,export default "ñ%20%3F.txt"'; import e from 'data:text/plain,text'
      export default [a, b.b, c, d, e]`
    expect(await run({ 'index.ts': code })).toEqual([1, 2, 3, 'ñ ?.txt', 'text'])
  })

  it.each(['data:text/javascript', 'data:text/javascript,%'])(
    'may not be an invalid data: address: %s',
    async (url) => {
      expect(await builder.issues({ 'index.ts': `import '${url}'` })).toMatchObject([
        { message: `Invalid address "${url}": must be data:<type>,<percent-encoded data>`, file: 'index.ts', line: 1 },
      ])
    },
  )

  it('of a data: address may be of a package and by the import map, but not relative', async () => {
    const files = { 'a.ts': 'export default 1', 'deno.json': '{ "imports": { "view": "npm:view@1" } }' }
    const code = `import { h } from 'data:text/javascript,export * from "npm:view"'
      import * as mapped from 'data:text/javascript,export * from "view"'
      export default [h, mapped.h]`
    expect(await run({ ...files, 'index.ts': code })).toEqual(['h', 'h'])
    expect(await builder.issues({ ...files, 'index.ts': `import 'data:text/javascript,import "./a.ts"'` })).toEqual([
      expect.objectContaining({ message: expect.stringContaining('"./a.ts"') }),
    ])
  })

  it('may be a module of the runtime, under either name', async () => {
    const code = `import fs from 'fs'; import { join } from 'node:path'; import { Buffer } from 'buffer'
      export default [typeof fs.readFile, join('a', 'b'), typeof Buffer.from]`
    expect(await run({ 'index.ts': code })).toEqual(['function', 'a/b', 'function'])
  })

  it('may be a module that the runtime does not have only if the program can go on without it', async () => {
    expect(await builder.issues({ 'index.ts': `import 'node:unknown'` })).toMatchObject([
      { message: 'The runtime has no module "node:unknown"', file: 'index.ts', line: 1 },
    ])
    const code = `import test from 'node:test'; import sqlite from 'node:sqlite'
      export default [typeof test, typeof sqlite, await import('node:unknown').catch((error) => error.code)]`
    expect(await run({ 'index.ts': code })).toEqual([expect.any(String), expect.any(String), 'MODULE_NOT_FOUND'])
  })
})

describe('an import map', () => {
  const code = `import a from 'a'; import b from 'lib/b.ts'; import { h } from 'view'; export default [a, b, h]`
  const files = { 'lib/a.ts': 'export default 1', 'lib/b.ts': 'export default 2', 'f/index.ts': code }
  const spec = { entrypoint: 'f/index.ts' }

  it.each([
    [
      'import_map.json that is named',
      'import_map.json',
      { imports: { a: './lib/a.ts', 'lib/': './lib/', view: 'npm:view@1' } },
      true,
    ],
    [
      'deno.json that is named',
      'conf/deno.json',
      { imports: { a: '../lib/a.ts', 'lib/': '../lib/', view: 'npm:view@^1.0.0' } },
      true,
    ],
    [
      'deno.json beside the entrypoint',
      'f/deno.json',
      { imports: { a: '../lib/a.ts', 'lib/': '../lib/', view: 'npm:view' } },
      false,
    ],
    ['deno.jsonc above it', 'deno.jsonc', { imports: { a: './lib/a.ts', 'lib/': './lib/', view: 'npm:view' } }, false],
  ])('is read from the %s', async (_name, path, map, named) => {
    const given = { ...files, [path]: JSON.stringify(map) }
    expect(await run(given, { ...spec, ...(named && { importMap: path }) })).toEqual([1, 2, 'h'])
  })

  it('may be named by deno.json, have scopes, and map names below a package', async () => {
    const given = {
      'f/index.ts': `import a from 'a'; import b from '../lib/b.ts'; export default [a, b]`,
      'lib/a.ts': 'export default 1',
      'lib/b.ts': `import a from 'a'; export default a`,
      'lib/c.ts': 'export default 3',
      'deno.json': '{ "importMap": "./maps/all.json" }',
      'maps/all.json': JSON.stringify({ imports: { a: '../lib/a.ts' }, scopes: { '../lib/': { a: '../lib/c.ts' } } }),
    }
    expect(await run(given, spec)).toEqual([1, 3])
    const below = {
      'index.ts': `import { jsx } from 'v/jsx-runtime.js'; export default typeof jsx`,
      'deno.json': '{ "imports": { "v": "npm:view@^1" } }',
    }
    expect(await run(below)).toBe('function')
  })

  it.each([
    ['empty entries', { imports: {}, importMap: './all.json' }, 'all'],
    ['no entries', { importMap: './all.json' }, 'all'],
    ['entries of its own', { imports: { a: './own.ts' }, importMap: './all.json' }, 'own'],
  ])('is named by deno.json only if that has no entries, as in Deno: %s', async (_name, denoJson, expected) => {
    const given = {
      'index.ts': `import a from 'a'; export default a`,
      ...{ 'own.ts': `export default 'own'`, 'all.ts': `export default 'all'` },
      'deno.json': JSON.stringify(denoJson),
      'all.json': '{ "imports": { "a": "./all.ts" } }',
    }
    expect(await run(given, { importMap: 'deno.json' })).toBe(expected)
    expect(await run(given)).toBe(expected)
  })

  it.each([
    ['{ "imports": { "a": }', 'Invalid JSON: ValueExpected', { line: 1, column: 21 }],
    ['{ "imports": { "a": 1 } }', 'imports.a', {}],
    ['{ "imports": [] }', 'imports', {}],
    ['{ "scopes": { "x": { "a": 7 } } }', 'scopes.x.a', {}],
  ])('is refused with its error if it is invalid: %s', async (text, message, place) => {
    const issues = await builder.issues({ ...files, 'map.json': text }, { ...spec, importMap: 'map.json' })
    expect(issues).toEqual([{ message: expect.stringContaining(message), file: 'map.json', ...place }])
  })

  it('is refused if it is nested too deeply', async () => {
    const given = { ...files, 'map.json': '['.repeat(1_000_000) }
    expect(await builder.issues(given, { ...spec, importMap: 'map.json' })).toEqual([
      { message: 'Invalid JSON: nested too deeply', file: 'map.json' },
    ])
  })

  it('maps names that modules of the runtime have too, but not for packages', async () => {
    await web.publish('usual', '1.0.0', { 'index.js': `exports.sep = require('path').sep` })
    const given = {
      'index.ts': `import { mine } from 'constants'; import { sep } from 'node:path'; import usual from 'npm:usual'
        export default [mine, sep, usual.sep]`,
      'mine.ts': `export const mine = 1; export const sep = 'mine'`,
      'deno.json': '{ "imports": { "constants": "./mine.ts", "path": "./mine.ts", "node:path": "./mine.ts" } }',
    }
    expect(await run(given)).toEqual([1, 'mine', '/'])
  })

  it('is refused if it does not exist or maps a name to nothing', async () => {
    expect(await builder.issues(files, { ...spec, importMap: 'map.json' })).toEqual([
      { message: 'The source has no import map map.json' },
    ])
    const denoJson = { 'deno.json': '{ "importMap": "gone.json" }' }
    expect(await builder.issues({ ...files, ...denoJson }, spec)).toEqual([
      { message: 'The source has no import map gone.json', file: 'deno.json' },
    ])
    const invalid = { 'deno.json': '{ "importMap": "http://[" }' }
    expect(await builder.issues({ ...files, ...invalid }, spec)).toEqual([
      { message: 'Invalid `importMap`: must be a path in the source', file: 'deno.json' },
    ])
    const nothing = await builder.issues({ ...files, 'deno.json': '{ "imports": { "a": null } }' }, spec)
    expect(nothing).toMatchObject([
      { message: '"a" cannot be resolved: deno.json maps it to no usable address', file: 'f/index.ts', line: 1 },
      {},
      {},
    ])
  })
})

describe('an error', () => {
  it.each([
    ['of syntax', 'const a = 1\nconst ü = "é" +', { message: 'Unexpected end of file', line: 2, column: 16 }],
    [
      'of a file that is missing',
      `export * from './gone.ts'`,
      { message: 'The source has no file "gone.ts"', line: 1, column: 15 },
    ],
    [
      'of a bare name',
      `import 'left-pad'`,
      {
        message: '"left-pad" is not in an import map: write "npm:left-pad", or map it in deno.json',
        line: 1,
        column: 8,
      },
    ],
    [
      'of an address that is invalid',
      `import '//a b'`,
      { message: 'Invalid import "//a b": must be a path, an address or a package', line: 1, column: 8 },
    ],
    [
      'of an unknown scheme',
      `import 'ftp://a/b.ts'`,
      { message: expect.stringContaining('"ftp://a/b.ts" cannot be imported'), line: 1, column: 8 },
    ],
    [
      'of a name that is not exported',
      `import { gone } from './names.js'; gone()`,
      { message: expect.stringContaining('No matching export'), line: 1, column: 10 },
    ],
    [
      'of a file that is no module',
      `import './a.psd'`,
      { message: expect.stringContaining('"a.psd" is not a module'), line: 1, column: 8 },
    ],
    [
      'of unknown attributes',
      `import a from './a.psd' with { type: 'css' }; a`,
      { message: expect.stringContaining("'css'"), line: 1 },
    ],
  ])('%s has file, line and column', async (_name, code, issue) => {
    const issues = await builder.issues({ 'index.ts': code, 'a.psd': 'x', 'names.js': 'export const a = 1' })
    expect(issues).toMatchObject([{ file: 'index.ts', ...issue }])
  })

  it('is reported if the program is nested too deeply, and the next build succeeds', async () => {
    const brackets = `export default ${'['.repeat(20_000)}${']'.repeat(20_000)}`
    expect(await builder.issues({ 'index.ts': brackets })).toEqual([
      { message: 'The program is nested too deeply: use fewer levels' },
    ])
    expect(await builder.build({ 'index.ts': 'export default 1' })).toMatchObject({ main: 'program.js' })
  })

  it('is reported with all others at once, up to a limit', async () => {
    const code = Array.from({ length: 30 }, (_, n) => `import './gone${n}.ts'`).join('\n')
    expect(await builder.issues({ 'index.ts': code })).toHaveLength(20)
  })
})

describe('a source', () => {
  it.each([
    ['../a.ts', 'must stay within the source'],
    ['a/../../b.ts', 'must stay within the source'],
    ['/etc/passwd', 'must be relative'],
    ['C:/a.ts', 'must be relative'],
    ['a//b.ts', 'must not contain empty or "." segments'],
    [`${'a'.repeat(1_025)}`, 'must have at most 1024 characters'],
  ])('cannot have a file at %s', async (path, message) => {
    expect(await builder.issues({ 'index.ts': '', [path]: '' })).toEqual([
      { message: `Invalid path ${JSON.stringify(path)}: ${message}` },
    ])
  })

  it('may have quotes, percent signs and other letters in its paths', async () => {
    const files = { 'a"b.ts': `import c from './%2522%20ñ.ts'; export default c`, '%22 ñ.ts': 'export default 1' }
    expect(await run(files, { entrypoint: 'a"b.ts' })).toBe(1)
  })

  it('has each path once, a limited number of files, and its entrypoint', async () => {
    expect(await builder.issues({ 'index.ts': '', './index.ts': '' })).toEqual([
      { message: 'The source has two files with this path', file: 'index.ts' },
    ])
    const many = Object.fromEntries(Array.from({ length: 2_001 }, (_, n) => [`${n}.ts`, '']))
    expect(await builder.issues(many)).toEqual([{ message: 'The source has more than 2000 files' }])
    expect(await builder.issues({ 'other.ts': '' })).toMatchObject([
      { message: 'The entrypoint "index.ts" is not in the source' },
    ])
    expect(await builder.issues({ 'index.ts': '' }, { entrypoint: '../index.ts' })).toEqual([
      { message: 'Invalid path "../index.ts": must stay within the source' },
    ])
    const large = { 'index.ts': '', 'large.bin': new Uint8Array(33 * 1024 ** 2) }
    expect(await builder.issues(large)).toEqual([{ message: 'The source is larger than 32 MiB' }])
  })
})

describe('static files', () => {
  const files = { 'index.ts': '', 'f/a.html': 'a', 'f/b/c.html': 'c', 'f/.d.txt': 'd', 'g/e[1].html': 'e' }
  it.each([
    [['f/*.html'], ['f/a.html']],
    [['./f/**/*.html'], ['f/a.html', 'f/b/c.html']],
    [['f/*'], ['f/a.html', 'f/.d.txt']],
    [
      ['f/{a,x}.html', 'index.ts'],
      ['index.ts', 'f/a.html'],
    ],
    [['nowhere/*'], []],
    [['**'], ['index.ts', 'f/a.html', 'f/b/c.html', 'f/.d.txt', 'g/e[1].html']],
    [
      ['f/[!b-z].h?ml', 'g/e\\[1].*'],
      ['f/a.html', 'g/e[1].html'],
    ],
    [['{f/{b/c,a},nowhere}.html'], ['f/a.html', 'f/b/c.html']],
    [['f/[', '!f/a.html', '**)('], []],
  ])('are those that %j match', async (staticPatterns, paths) => {
    const image = await builder.build(files, { staticPatterns })
    expect(Object.keys(image.files).sort()).toEqual(paths.sort())
  })

  it.each([
    ['*a'.repeat(120), 'a'.repeat(1_000)],
    ['**/a/'.repeat(50), 'a/'.repeat(500)],
    ['+(+(a))(a+)+b', 'a'.repeat(1_000)],
  ])('are matched in bounded time: %s', async (pattern, path) => {
    const image = await builder.build({ ...files, [`${path}c`]: 'c' }, { staticPatterns: [pattern] })
    expect(image.files).toEqual({})
  })

  it('are searched within a limit', async () => {
    const braces = await builder.issues(files, { staticPatterns: ['{a,b}'.repeat(20)] })
    expect(braces).toEqual([{ message: 'The static patterns expand to more than 1000: use fewer braces' }])
    const long = Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`${'a'.repeat(990)}${n}`, '']))
    const patterns = Array.from({ length: 100 }, (_, n) => `*${'a'.repeat(240)}b${n}`)
    expect(await builder.issues({ ...files, ...long }, { staticPatterns: patterns })).toEqual([
      { message: 'The static patterns take too long to match: use simpler ones' },
    ])
  })

  it('keep their bytes', async () => {
    const bytes = new Uint8Array([0, 255, 128])
    const image = await builder.build({ 'index.ts': '', 'x.bin': bytes }, { staticPatterns: ['*.bin'] })
    expect(image.files).toEqual({ 'x.bin': 'AP+A' })
  })

  it('count toward the size of the program, together with its WebAssembly', async () => {
    const bytes = new Uint8Array(8 * 1024 ** 2)
    const given = { 'index.ts': `import './c.wasm'`, 'a.bin': bytes, 'b.bin': bytes, 'c.wasm': bytes }
    const issue = { message: 'The program is larger than 20 MiB' }
    expect(await builder.issues(given, { staticPatterns: ['*.bin'] })).toEqual([issue])
    expect(await builder.issues(given, { staticPatterns: ['a.bin'] })).toMatchObject([{ ...issue, file: 'index.ts' }])
  })

  it.each([['/etc/*'], ['../*'], ['']])('cannot be matched by %j', async (pattern) => {
    expect(await builder.issues(files, { staticPatterns: [pattern] })).toEqual([
      {
        message: `Invalid static pattern ${JSON.stringify(pattern)}: must be relative to the source and at most 256 characters`,
      },
    ])
  })
})
