import type { ChildProcess } from 'node:child_process'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { getPriority } from 'node:os'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NICE } from '../../dev/child-process.ts'
import { supervise } from '../../dev/supervise.ts'
import { extended } from '../support/extended.ts'
import { type BuilderProcess, startBuilderProcess } from './client.ts'
import { startWeb } from './web.ts'

let builder: BuilderProcess
beforeAll(async () => {
  const gone = await startWeb()
  await gone.stop()
  builder = await startBuilderProcess({ NPM_REGISTRY_URL: gone.origin, JSR_REGISTRY_URL: 'http://nowhere.invalid' })
})
afterAll(() => builder.stop())

const program = (js: string) => ({ image: { main: 'program.js', modules: { 'program.js': { js } }, files: {} } })

it('the builder refuses every request without its key, at each of its ports', async () => {
  const probed = JSON.stringify(program('export default {}'))
  // Each process starts with its first request.
  await builder.build({ 'index.ts': 'Deno.serve(() => new Response())' })
  await builder.probe(program('export default {}'))
  const statuses = builder.ports.flatMap((port) =>
    ['', 'x'.repeat(48)].map(async (key) => {
      const headers = { 'x-pilothouse-key': key }
      return (await fetch(`http://127.0.0.1:${port}/probe`, { method: 'POST', headers, body: probed })).status
    }),
  )
  expect(await Promise.all(statuses)).toEqual(builder.ports.flatMap(() => [403, 403]))
})

describe('a program on trial', () => {
  it('reports its handlers, and none of them is called', async () => {
    const js = `export default { fetch() { throw new Error('called') }, scheduled() {} }`
    expect(await builder.probe(program(js))).toEqual({ handlers: ['fetch', 'scheduled'] })
    const named = `import { WorkerEntrypoint } from 'cloudflare:workers'; export default class extends WorkerEntrypoint { fetch() {} }`
    expect(await builder.probe(program(named))).toEqual({ handlers: ['fetch'] })
    expect(await builder.probe(program('export const a = 1'))).toEqual({ handlers: [] })
    const image = await builder.build({
      'index.ts': `Deno.serve(() => new Response()); export default { scheduled() {} }`,
    })
    expect(await builder.probe({ image })).toEqual({ handlers: ['fetch', 'scheduled'] })
  })

  it.each([
    ['random values', 'crypto.randomUUID(); crypto.getRandomValues(new Uint8Array(1))'],
    ['timers', 'setInterval(() => {}, 1_000); await new Promise((resolve) => setTimeout(resolve, 1))'],
    ['the network, which gives no answer here', `await fetch('https://example.com')`],
    ['the network, without waiting', `fetch('https://example.com').catch(() => {})`],
  ])('may use %s at its top level', async (_name, js) => {
    const image = await builder.build({ 'index.ts': `${js}; export default { fetch() {} }` })
    const { handlers } = await builder.probe({ image })
    expect(handlers).toContain('fetch')
  })

  it('finds its environment at its start', async () => {
    const js = `import { env } from 'cloudflare:workers'; if (env.A !== 'b') throw new Error('no environment'); export default {}`
    expect(await builder.probe({ ...program(js), env: { A: 'b' } })).toEqual({ handlers: [] })
  })

  it.each([
    ['throws', `throw new Error('not today')`, 'not today'],
    ['is no JavaScript', 'export default {', 'SyntaxError'],
    ['imports what is not there', `import './nowhere.js'`, 'nowhere.js'],
    ['answers for us', `Response.json = () => new Response('x'.repeat(100_000))`, 'must not replace Response'],
    [
      'answers for us without an end',
      `Response.json = () => new Response(new ReadableStream())`,
      'must not replace Response',
    ],
    ['waits for ever', 'await new Promise(() => {})', 'does not start'],
  ])('is refused when it %s', async (_name, js, message) => {
    const { issues = [] } = await builder.probe(program(js))
    expect(issues[0]?.message).toContain(message)
  })

  it.each([
    [
      'memory that no heap limit bounds',
      `const all = []; for (;;) { all.push(new Uint8Array(64 * 1024 ** 2).fill(1)); await 0 }`,
    ],
    ['large arrays', 'const all = []; for (;;) all.push(new Array(1_000_000).fill(all.length))'],
    ['small objects', 'for (let n = 0, all = []; ; n += 1) all.push({ n })'],
  ])('ends only its own process, with an error that names its memory: %s', async (_name, js) => {
    // A heap of the default limit takes longer than a program may take to start if the machine is busy.
    const small = await startBuilderProcess({}, 512)
    const { issues = [] } = await small.probe(program(js))
    expect(issues[0]?.message).toBe('The program ended the process that started it: does it need too much memory?')
    expect(await small.probe(program('export default { fetch() {} }'))).toEqual({ handlers: ['fetch'] })
    await small.stop()
  })

  extended('cannot block others by an endless loop, nor by taking all memory', async () => {
    const [looping, greedy, healthy, image] = await Promise.all([
      builder.probe(program('for (;;);')),
      builder.probe(program('const all = []; for (;;) all.push(new Array(1_000_000).fill(all.length))')),
      builder.probe(program('export default { fetch() {} }')),
      builder.build({ 'index.ts': 'export default 1' }),
    ])
    expect(looping.issues?.[0]?.message).toContain('within 12 s')
    expect(greedy.issues?.[0]?.message).toContain('too much memory')
    expect(healthy).toEqual({ handlers: ['fetch'] })
    expect(image.main).toBe('program.js')
  })
})

describe('a supervised process', () => {
  it("that does not start blocks nobody for long, and is not reported as the caller's fault", async () => {
    const lines: string[] = []
    const modules = [{ type: 'ESModule', path: 'loop.js', contents: 'for (;;);' }]
    const worker = { name: 'loop', compatibilityDate: '2026-11-01', modules }
    const looping = supervise({
      ...{ worker, secondsMax: 60, startSecondsMax: 2 },
      onLine: (line) => lines.push(line),
    })
    const request = { path: '/', headers: {}, body: new Uint8Array() }
    expect(await looping.send(request, new AbortController().signal)).toEqual({ kind: 'not-started' })
    expect(lines.join()).toContain('it was not ready within 2 s')
    await looping.stop()
  })

  it('is watched again after it has ended between two requests', async () => {
    const contents = `export default { async fetch({ url }) {
      if (!url.endsWith('/greedy')) return new Response()
      const all = Array.from({ length: 10 }, () => new Uint8Array(64 * 1024 ** 2).fill(1))
      await new Promise(() => setInterval(() => all, 1_000))
    } }`
    const modules = [{ type: 'ESModule', path: 'a.js', contents }]
    const worker = { name: 'greedy', compatibilityDate: '2026-11-01', modules }
    const process = supervise({ worker, secondsMax: 20, memoryMiB: 400, onLine: () => {} })
    const ask = (path: string) =>
      process.send({ path, headers: {}, body: new Uint8Array() }, new AbortController().signal)
    const children: ChildProcess[] = []
    const onSpawn = (message: unknown) => void children.push((message as { process: ChildProcess }).process)
    subscribe('child_process', onSpawn)
    expect(await ask('/')).toMatchObject({ kind: 'answered' })
    unsubscribe('child_process', onSpawn)
    expect(children).toHaveLength(1)
    for (const child of children) {
      expect(getPriority(child.pid)).toBe(NICE.programs)
      const closed = once(child, 'close')
      child.kill('SIGKILL')
      await closed
    }
    expect(await ask('/')).toMatchObject({ kind: 'answered' })
    expect(await ask('/greedy')).toEqual({ kind: 'ended' })
    await process.stop()
  })

  it('drops callers that left before their turn, and refuses callers beyond the waiting limits, of all and of one origin', async () => {
    const contents = `let asked = 0
      export default { async fetch({ url }) { asked += 1; await scheduler.wait(url.endsWith('/slow') ? 1_000 : 0); return new Response(String(asked)) } }`
    const worker = {
      name: 'count',
      compatibilityDate: '2026-11-01',
      modules: [{ type: 'ESModule', path: 'a.js', contents }],
    }
    const counting = supervise({ worker, secondsMax: 30, onLine: () => {} })
    const ask = (path: string, origin: string, caller = new AbortController()) =>
      counting.send({ path, headers: {}, body: new Uint8Array(), origin }, caller.signal)
    const caller = new AbortController()
    const [slow, gone] = [ask('/slow', 'a'), ask('/', 'a', caller)]
    caller.abort()
    const waiting = Array.from({ length: 49 }, () => ask('/', 'a'))
    expect(await ask('/', 'a')).toEqual({ kind: 'busy' })
    expect([counting.isBusy('a'), counting.isBusy('b')]).toEqual([true, false])
    for (let n = 0; n < 49; n++) waiting.push(ask('/', 'b'))
    expect(await ask('/', 'c')).toEqual({ kind: 'busy' })
    expect(counting.isBusy('c')).toBe(true)
    expect(await slow).toMatchObject({ kind: 'answered', body: new TextEncoder().encode('1') })
    expect(await gone).toEqual({ kind: 'canceled' })
    expect(await Promise.all(waiting)).toContainEqual(
      expect.objectContaining({ kind: 'answered', body: new TextEncoder().encode('99') }),
    )
    await counting.stop()
  })
})

describe('requests that wait for a supervised process', () => {
  it('take turns by their origin, so that one origin delays another by at most one request', async () => {
    const contents = 'export default { fetch: () => new Response() }'
    const modules = [{ type: 'ESModule', path: 'a.js', contents }]
    const worker = { name: 'turns', compatibilityDate: '2026-11-01', modules }
    const process = supervise({ worker, secondsMax: 30, onLine: () => {} })
    const answered: string[] = []
    const ask = async (origin: string) => {
      const request = { path: '/', headers: {}, body: new Uint8Array(), origin }
      expect(await process.send(request, new AbortController().signal)).toMatchObject({ kind: 'answered' })
      answered.push(origin)
    }
    await Promise.all(['a', 'a', 'a', 'a', 'b', 'b', 'c'].map(ask))
    expect(answered).toEqual(['a', 'b', 'c', 'a', 'b', 'a', 'a'])
    await process.stop()
  })
})

describe('a build', () => {
  it("is not reported as the deployer's fault if a registry cannot be reached", async () => {
    expect(await builder.issues({ 'index.ts': `export * from 'npm:base'` })).toEqual({
      unavailable: expect.stringMatching(/^The registry http:\/\/127\.0\.0\.1:\d+ cannot be reached$/),
    })
    expect(await builder.issues({ 'index.ts': `export * from 'jsr:@a/base'` })).toEqual({
      unavailable: 'The registry http://nowhere.invalid cannot be reached',
    })
    // Lines of the runtime come before the answer to a later request.
    await builder.build({ 'index.ts': 'export default 1' })
    expect(builder.lines.filter((line) => line.includes('lookup'))).toEqual([])
  })

  it('of more than 64 MiB is refused, and other builds go on', async () => {
    const body = new Uint8Array(65 * 1024 ** 2)
    await expect(builder.post('/function', body)).rejects.toThrow('413')
    expect(await builder.build({ 'index.ts': 'export default 1' })).toMatchObject({ main: 'program.js' })
  })

  it('imports nothing from this machine or its network', async () => {
    const web = await startWeb()
    const url = web.serve('/mod.ts', 'export default 1')
    const name = url.replace('127.0.0.1', 'localhost')
    for (const address of [
      url,
      name,
      'http://10.0.0.1/mod.ts',
      'http://169.254.169.254/latest',
      'https://metadata/x',
    ]) {
      const result = await builder.issues({ 'index.ts': `export * from '${address}'` })
      expect(result).toMatchObject([
        { message: expect.stringMatching(/cannot be fetched: it must (have|name) a public/) },
      ])
    }
    expect(web.asked).toEqual([])
    await web.stop()
  })
})
