import { beforeAll, describe, expect, it } from 'vitest'
import { newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { newProject } from '../../support/projects.ts'
import { type Source, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

/** Returns the worker's answer, or why it could not be built. */
async function answerOf(source: Source): Promise<string> {
  const worker = workerOf(await newMember(organization, 'developer'), ref)
  const { build_state, state_reason } = await worker.ship(source)
  return build_state === 'failed' ? state_reason : (await worker.call()).text()
}

/** A program that answers with the value of `text`. */
const showing = (imports: string) => `${imports}\nexport default { fetch: () => new Response([text].flat().join()) }`
const json = (value: unknown) => JSON.stringify(value)

describe("a worker's own package", () => {
  it('has internal imports of its files and of others, by conditions and patterns', async () => {
    const answer = await answerOf({
      'package.json': json({
        imports: {
          '#where': { browser: './browser.js', workerd: './workerd.js', default: './node.js' },
          '#how': { require: './required.cjs', import: './imported.js' },
          '#lib/*.js': './lib/*.js',
          '#events': 'node:events',
        },
      }),
      'index.js':
        showing(`import where from '#where'; import how from '#how'; import { a } from '#lib/a.js'; import events from '#events'
        const text = [where, how, require('#how'), a, typeof events]`),
      ...{ 'workerd.js': `export default 'workerd'`, 'browser.js': 'nothing', 'node.js': 'nothing' },
      ...{ 'imported.js': `export default 'imported'`, 'required.cjs': `module.exports = 'required'` },
      'lib/a.ts': `export { b as a } from '#lib/deep/b.js'`,
      'lib/deep/b.ts': `export const b: string = 'deep'`,
    })
    expect(answer).toBe('workerd,imported,required,deep,function')
  })

  it('may import its own exports', async () => {
    const files = {
      'src/index.ts': showing(
        `import { name } from 'my-app/name'; import { text } from 'my-app/texts/one'; name satisfies string`,
      ),
      'src/name.ts': `export const name = 'name'`,
      'src/texts/one.ts': `export const text = 'one'`,
    }
    const exports = { '.': './src/index.js', './name': { workerd: './src/name.ts' }, './texts/*': './src/texts/*.ts' }
    expect(await answerOf({ ...files, 'package.json': json({ name: 'my-app', exports }) })).toBe('one')
    const { './texts/*': _, ...fewer } = exports
    expect(await answerOf({ ...files, 'package.json': json({ name: 'my-app', exports: fewer }) })).toContain(
      ': my-app does not export "./texts/one"',
    )
  })

  it.each([
    ['is not listed', { '#other': './a.js' }, 'index.js:1:18: package.json has no internal import "#a"'],
    [
      'leads to a missing file',
      { '#a': './b.js' },
      'index.js:1:18: "#a" cannot be found: package.json maps it to "b.js", which is not in the source',
    ],
    [
      'leads out of the source',
      { '#a': './../a.js' },
      'package.json: Invalid path "./../a.js": must stay within the source',
    ],
    ['is mapped to itself', { '#a': '#a' }, 'package.json: Invalid target "#a" of "#a"'],
    ['is not a mapping', 5, 'has no internal import "#a"'],
  ])('is refused with an internal import that %s', async (_, imports, reason) => {
    const source = { 'package.json': json({ imports }), 'index.js': showing(`import text from '#a'`) }
    expect(await answerOf(source)).toContain(reason)
  })

  it('may have workspaces, which replace dependencies on them', async () => {
    const answer = await answerOf({
      'package.json': json({ main: 'apps/api/index.ts', workspaces: ['./packages/*', 'apps/*', '!packages/old'] }),
      'apps/api/package.json': json({ dependencies: { '@my/shared': 'workspace:*', plain: '^1.0.0' } }),
      'apps/api/index.ts': showing(
        `import { shared } from '@my/shared/text'; import plain from 'plain'; const text = [shared, plain]`,
      ),
      'packages/shared/src/text.ts': `import { own } from '#own'; export const shared = 'shared ' + own`,
      'packages/shared/package.json': json({
        ...{ name: '@my/shared', exports: { './text': './src/text.js' } },
        imports: { '#own': './own.js' },
      }),
      'packages/shared/own.js': `export const own = 'own'`,
      'packages/plain/package.json': json({ name: 'plain', main: './main' }),
      'packages/plain/main.ts': `export default 'plain'`,
      'packages/old/package.json': json({ name: 'plain' }),
    })
    expect(answer).toBe('shared own,plain')
  })

  it('is refused with invalid workspaces', async () => {
    const files = { 'index.js': showing(`import text from 'other'`) }
    const of = (workspaces: unknown) => answerOf({ ...files, 'package.json': json({ workspaces }) })
    expect(await of(['{a,b}'.repeat(20)])).toContain('Invalid `workspaces`: the patterns expand to too many')
    expect(await of('packages/*')).toMatch(/^package\.json: .* workspaces/)
  })
})

describe('tsconfig.json', () => {
  const files = {
    'src/lib/a.ts': `export const a = 'a'`,
    'src/lib/b/index.ts': `export const b = 'b'`,
    'generated/c.ts': `export const c = 'c'`,
    'only.ts': `export const only = 'only'`,
    'types/a.d.ts': 'export const never: string',
  }

  it('has paths, of which the most exact one is used, relative to the file that names them', async () => {
    const answer = await answerOf({
      ...files,
      'tsconfig.json': `{
        // A comment and trailing commas, as people write them.
        "compilerOptions": { "paths": {
          "@/*": ["./src/*"], "@/gen/*": ["./types/*.d.ts", "./nowhere/*", "./generated/*"], "only": ["./only"],
        }, },
      }`,
      'src/index.ts':
        showing(`import { a } from '@/lib/a'; import { b } from '@/lib/b'; import { c } from '@/gen/c.js'; import { only } from 'only'
        const text = [a, b, c, only]`),
    })
    expect(answer).toBe('a,b,c,only')
  })

  it('has a baseUrl, and can extend another file', async () => {
    const answer = await answerOf({
      ...files,
      'config/base.json': json({ compilerOptions: { baseUrl: '..', paths: { '~/*': ['src/lib/*'] } } }),
      'config/jsx.json': json({ compilerOptions: { jsx: 'react', jsxFactory: 'h' } }),
      'tsconfig.json': json({ extends: ['@tsconfig/strictest/tsconfig.json', './config/base', './config/jsx.json'] }),
      'src/index.tsx': showing(`import { a } from '~/a'; import { b } from 'src/lib/b'
        const h = (name: string) => name; const text = [a, b, <p />]`),
    })
    expect(answer).toBe('a,b,p')
  })

  it('applies although one of its options has an unknown value', async () => {
    const answer = await answerOf({
      'tsconfig.json': json({ compilerOptions: { jsx: 'future', jsxFactory: 'h' } }),
      'index.tsx': showing('const h = (name: string) => name; const text = <p />'),
    })
    expect(answer).toBe('p')
  })

  it('resolves its paths from the folder of the extending file if it says so, and the nearest file is used', async () => {
    const answer = await answerOf({
      ...files,
      'base.json': json({ compilerOptions: { paths: { '@/*': [`\${configDir}/lib/*`] } } }),
      'src/tsconfig.json': json({ extends: '../base.json' }),
      'tsconfig.json': json({ compilerOptions: { paths: { '@/*': ['./nowhere/*'] } } }),
      'src/index.ts': showing(`import { a as text } from '@/a'`),
    })
    expect(answer).toBe('a')
  })

  const reading = showing(`import { a as text } from '@/a'`)
  it.each<[string, Source, string]>([
    ['that is not JSON', { 'tsconfig.json': '{\n  "compilerOptions": {]\n}' }, 'tsconfig.json:2:23: Invalid JSON: '],
    [
      'with paths of another type',
      { 'tsconfig.json': json({ compilerOptions: { paths: { '@/*': './src/*' } } }) },
      'tsconfig.json: ',
    ],
    [
      'that extends itself',
      { 'tsconfig.json': json({ extends: './a.json' }), 'a.json': json({ extends: './tsconfig' }) },
      'tsconfig.json: Invalid `extends`: the file extends itself',
    ],
    [
      'that extends a file outside the source',
      { 'tsconfig.json': json({ extends: '../../base.json' }) },
      'index.ts:1:27: "@/a" cannot be found: tsconfig.json extends "../../base.json", which is not in the source',
    ],
    [
      'with paths outside the source',
      { 'tsconfig.json': json({ compilerOptions: { paths: { '@/*': ['../../*'] } } }) },
      'tsconfig.json: Invalid path "../../a" of "@/a": must stay within the source',
    ],
    [
      'with a baseUrl outside the source',
      { 'tsconfig.json': json({ compilerOptions: { baseUrl: '/home', paths: { '@/*': ['*'] } } }) },
      'tsconfig.json: Invalid path "a" of "@/a": must stay within the source',
    ],
  ])('is reported if it is one %s', async (_, source, reason) => {
    expect(await answerOf({ ...source, 'index.ts': reading })).toContain(reason)
  })
})
