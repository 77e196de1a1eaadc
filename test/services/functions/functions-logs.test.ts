import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { eq, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { functions, invocations } from '../../../src/model/tables/index.ts'
import { baseUrl, control, newOrganization, tick } from '../../support/api.ts'
import { invocationsOf, putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'

let project: TestStorage
const serve = (body: string) => `Deno.serve(async (request) => { ${body} })`

beforeAll(async () => {
  project = await newStorage(await newOrganization())
})

async function deployed(body: string) {
  const { slug, id, deploymentId } = await putFunction(project.ref, serve(body))
  const path = `/p/${project.ref}/functions/v1/${slug}`
  return {
    id,
    deploymentId,
    path,
    call: async (rest = '', init: RequestInit = {}) => (await fetch(new URL(path + rest, baseUrl), init)).text(),
    /** Returns the rows of its calls, once there are so many. */
    written: (count: number) =>
      vi.waitFor(async () => {
        const rows = await invocationsOf(id)
        expect(rows).toHaveLength(count)
        return rows
      }, WAIT),
  }
}

describe('each call of a function', () => {
  it('leaves a row', async () => {
    const { id, deploymentId, path, call, written } =
      await deployed(`await new Promise((resolve) => setTimeout(resolve, 50))
      return new Response('x', { status: 202 })`)
    await call('/more?token=secret', { method: 'POST' })
    const [row] = await written(1)
    expect(row).toEqual({
      id: expect.any(String),
      projectRef: project.ref,
      kind: 'function',
      programId: id,
      deploymentId,
      method: 'POST',
      path: `${path.replace(`/p/${project.ref}`, '')}/more`,
      status: 202,
      ms: expect.any(Number),
      console: [],
      at: expect.any(Date),
    })
    expect(row?.ms).toBeGreaterThanOrEqual(50)
  })

  it('leaves its log lines, in order and with levels', async () => {
    const { call, written } =
      await deployed(`console.log('one', { a: 1 }); console.info('%s two', 'x'); console.warn('three')
      console.error(new Error('four').message); console.debug('five'); console.table([1]); console.assert(false, 'seven')
      console.assert(true, 'never'); return new Response('x')`)
    await call()
    const [row] = await written(1)
    expect(row?.console.map(({ level, message }) => [level, message])).toEqual([
      ['log', 'one { a: 1 }'],
      ['info', 'x two'],
      ['warn', 'three'],
      ['error', 'four'],
      ['debug', 'five'],
      ['log', '[ 1 ]'],
      ['error', 'Assertion failed: seven'],
    ])
    expect(Math.abs(Date.parse(row?.console[0]?.at ?? '') - Date.now())).toBeLessThan(60_000)
  })

  it('leaves its measurements and its duration', async () => {
    const { call, written } = await deployed(`console.count(); console.count('a'); console.count(); console.countReset()
      console.count(); console.time('t'); console.timeLog('t', 'so far'); console.timeEnd('t'); console.timeEnd('t')
      console.groupCollapsed('in'); console.dirxml('out'); return new Response('x')`)
    await call()
    const [row] = await written(1)
    expect(row?.console.map(({ level, message }) => [level, message])).toEqual([
      ['log', 'default: 1'],
      ['log', 'a: 1'],
      ['log', 'default: 2'],
      ['log', 'default: 1'],
      ['log', expect.stringMatching(/^t: \d+ms so far$/)],
      ['log', expect.stringMatching(/^t: \d+ms$/)],
      ['warn', "Timer 't' does not exist"],
      ['log', 'in'],
      ['log', 'out'],
    ])
  })

  it('leaves only its own lines, even if others run at the same time', async () => {
    const { call, written } = await deployed(`const name = new URL(request.url).search
      for (let n = 0; n < 3; n++) { console.log(name, n); await new Promise((resolve) => setTimeout(resolve, 20)) }
      return new Response('x')`)
    await Promise.all(['?a', '?b', '?c'].map((name) => call(name)))
    const rows = await written(3)
    const printed = rows.map(({ console }) => console.map(({ message }) => message)).sort()
    expect(printed).toEqual(['?a', '?b', '?c'].map((name) => [0, 1, 2].map((n) => `${name} ${n}`)))
  })

  it('leaves a row for a WebSocket when it opens, with the lines printed while it is open', async () => {
    const { path, written } = await deployed(`const { socket, response } = Deno.upgradeWebSocket(request)
      socket.onmessage = ({ data }) => { console.log('heard', data); socket.send('heard') }
      console.log('opens')
      return response`)
    const socket = new WebSocket(new URL(`${path}/more`, baseUrl.replace('http', 'ws')))
    await once(socket, 'open')
    expect(await written(1)).toMatchObject([
      { method: 'GET', path: `${path.replace(`/p/${project.ref}`, '')}/more`, status: 101 },
    ])
    socket.send('hello')
    await once(socket, 'message')
    await vi.waitFor(async () => {
      const [row] = await written(1)
      expect(row?.console.map(({ message }) => message)).toEqual(['opens', 'heard hello'])
    }, 60_000)
    socket.close()
  })

  it('leaves the reason of a failure', async () => {
    const { call, written } = await deployed(`throw new TypeError('for this reason')`)
    await call()
    const [row] = await written(1)
    expect(row?.status).toBe(500)
    expect(JSON.stringify(row?.console)).toContain('TypeError: for this reason')
  })

  it('leaves a row if it is refused, with the reason', async () => {
    const checked = await putFunction(project.ref, serve(`return new Response('x')`), { verifyJwt: true })
    const throttled = await putFunction(project.ref, serve(`return new Response('x')`))
    await control.update(functions).set({ status: 'THROTTLED' }).where(eq(functions.id, throttled.id))
    for (const { slug } of [checked, throttled]) {
      await fetch(new URL(`/p/${project.ref}/functions/v1/${slug}?token=secret`, baseUrl), { method: 'PUT' })
    }
    await vi.waitFor(async () => {
      const [unknown, many] = [await invocationsOf(checked.id), await invocationsOf(throttled.id)]
      expect(unknown).toMatchObject([
        {
          ...{ kind: 'function', method: 'PUT', path: `/functions/v1/${checked.slug}` },
          ...{ deploymentId: checked.deploymentId, status: 401, ms: 0 },
          console: [{ level: 'error', message: 'refused: UNAUTHORIZED_NO_AUTH_HEADER' }],
        },
      ])
      expect(many).toMatchObject([{ status: 546, console: [{ message: 'refused: WORKER_RESOURCE_LIMIT' }] }])
    }, WAIT)
  })

  it('leaves twenty rows at once and then twenty a minute if it is refused, however many callers there are', async () => {
    const { slug, id } = await putFunction(project.ref, serve(`return new Response('x')`), { verifyJwt: true })
    const { call, written } = await deployed(`return new Response('x')`)
    const refused = () => fetch(new URL(`/p/${project.ref}/functions/v1/${slug}`, baseUrl))
    const startedAt = Date.now()
    const statuses = await Promise.all(Array.from({ length: 60 }, async () => (await refused()).status))
    const minutes = (Date.now() - startedAt) / 60_000
    expect(new Set(statuses)).toEqual(new Set([401]))
    // The row of a later call is written after those of earlier ones.
    await call()
    await written(1)
    const { length } = await invocationsOf(id)
    expect(length).toBeGreaterThanOrEqual(20)
    expect(length).toBeLessThanOrEqual(20 + 20 * minutes)
  })

  it('leaves unhandled errors', async () => {
    const { call, written } = await deployed(`Promise.reject(new Error('nobody waited')); return new Response('x')`)
    await call()
    await vi.waitFor(async () => expect(JSON.stringify(await written(1))).toContain('nobody waited'), WAIT)
  })

  it.each([
    ['a timer', `setTimeout(() => { throw new Error('nobody caught') }, 1)`],
    ['an interval', `const id = setInterval(() => { clearInterval(id); throw new Error('nobody caught') }, 1)`],
    ['a microtask', `queueMicrotask(() => { throw new Error('nobody caught') })`],
    ['reportError', `reportError(new Error('nobody caught'))`],
  ])('leaves an error that %s throws, unless the program prevents it', async (_, code) => {
    const wait = `await new Promise((resolve) => setTimeout(resolve, 20)); return new Response('x')`
    const { call, written } = await deployed(`${code}; ${wait}`)
    await call()
    const lines = [{ level: 'error', message: expect.stringContaining('Error: nobody caught') }]
    await vi.waitFor(async () => expect((await written(1))[0]?.console).toMatchObject(lines), WAIT)
    const listener = `addEventListener('error', (event) => { console.log(event.error.message); event.preventDefault() }, { once: true })`
    const prevented = await deployed(`${listener}; ${code}; ${wait}`)
    await prevented.call()
    const own = [{ level: 'log', message: 'nobody caught' }]
    await vi.waitFor(async () => expect((await prevented.written(1))[0]?.console).toMatchObject(own), WAIT)
  })

  it('leaves no line of a rejection that the program handles in a listener', async () => {
    const { call, written } = await deployed(`
      addEventListener('unhandledrejection', (event) => { console.log('seen'); event.preventDefault() })
      Promise.reject(new Error('lost')); await new Promise((resolve) => setTimeout(resolve, 20)); return new Response('x')`)
    await call()
    await vi.waitFor(async () => expect((await written(1))[0]?.console).toMatchObject([{ message: 'seen' }]), WAIT)
  })

  it('leaves a limited number of lines of a limited length', async () => {
    const { call, written } = await deployed(
      `for (let n = 0; n < 500; n++) console.log('x'.repeat(20_000)); return new Response('x')`,
    )
    await call()
    const [row] = await written(1)
    expect(row?.console).toHaveLength(100)
    expect(row?.console[0]?.message).toHaveLength(10_000)
  })

  it.each([
    ['throws', `throw new Error('the reason')`, 'Uncaught Error: the reason'],
    [
      'leaves a rejection unhandled',
      `Promise.reject(new Error('the reason')); await new Promise((resolve) => setTimeout(resolve, 20)); return new Response('x')`,
      'Unhandled rejection: Error: the reason',
    ],
  ])('leaves the reason if the program has printed all its lines and then %s', async (_, code, reason) => {
    const { call, written } = await deployed(`for (let n = 1; n <= 150; n++) console.log(n); ${code}`)
    await call()
    await vi.waitFor(async () => {
      const [row] = await written(1)
      expect(row?.console.map(({ message }) => message)).toEqual([
        ...Array.from({ length: 99 }, (_, n) => String(n + 1)),
        expect.stringContaining(reason),
      ])
    }, WAIT)
  })

  it('leaves those late lines for which its row has room, and an error in the place of the last one', async () => {
    const { call, written } = await deployed(
      `if (request.url.endsWith('?go')) { globalThis.go = true; return new Response('x') }
      const print = (from, to) => { for (let n = from; n <= to; n++) console.log(n) }
      EdgeRuntime.waitUntil((async () => {
        while (!globalThis.go) await new Promise((resolve) => setTimeout(resolve, 20))
        print(61, 150)
        reportError(new Error('the reason'))
      })())
      print(1, 60)
      return new Response('x')`,
    )
    await call()
    await vi.waitFor(async () => expect((await written(1))[0]?.console).toHaveLength(60), WAIT)
    await call('?go')
    await vi.waitFor(async () => {
      const [row] = await written(2)
      expect(row?.console.map(({ message }) => message)).toEqual([
        ...Array.from({ length: 99 }, (_, n) => String(n + 1)),
        expect.stringContaining('Uncaught Error: the reason'),
      ])
    }, WAIT)
  })

  it('leaves its row as it is if that has no room for the late lines', async () => {
    const { call, written } = await deployed(
      `const { env } = await import('cloudflare:workers')
      const ended = new URL(request.url).searchParams.get('ended')
      if (ended) await env['=console'].write(ended, [{ level: 'log', message: 'late', at: new Date().toISOString() }])
      else for (let n = 1; n <= 100; n++) console.log(n)
      return new Response('x')`,
    )
    const versionsOf = (row?: string) =>
      control.execute(
        sql`select xmin::text, status, jsonb_array_length(console) as lines from invocations where id = ${row}`,
      )
    await call()
    const [row] = await written(1)
    const { rows: before } = await versionsOf(row?.id)
    expect(before).toMatchObject([{ status: 200, lines: 100 }])
    // Late lines are written at the latest before the row of the second call after them.
    await call(`?ended=${row?.id}`)
    await written(2)
    await call()
    await written(3)
    expect((await versionsOf(row?.id)).rows).toEqual(before)
  })

  it('leaves fewer lines of a project that has printed many, even if those were empty', async () => {
    const { ref } = await newStorage(await newOrganization())
    const { slug, id } = await putFunction(
      ref,
      serve(`const { env } = await import('cloudflare:workers')
        const empty = Array(100).fill({ message: '' })
        for (let n = 0; n < 1_000; n++) await env['=console'].write(crypto.randomUUID(), empty)
        for (let n = 0; n < 100; n++) console.log('x'.repeat(10_000))
        return new Response('x')`),
    )
    expect((await fetch(new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl))).status).toBe(200)
    const [row] = await vi.waitFor(async () => {
      const rows = await invocationsOf(id)
      expect(rows).toHaveLength(1)
      return rows
    }, WAIT)
    expect(row?.console.length).toBeLessThan(100)
  })

  it('keeps characters that the database cannot store', async () => {
    const { call, written } = await deployed(`console.log('a\\0b\\ud800c'); return new Response('x')`)
    await call()
    const [row] = await written(1)
    expect(row?.console[0]?.message).toBe('ab\ufffdc')
  })

  it('does not split a character when a long message is truncated', async () => {
    const message = `${'x'.repeat(9_999 - 'Failed to start Worker: Error: '.length)}\u{1f600}`
    const { slug, id } = await putFunction(project.ref, `throw new Error(${JSON.stringify(message)})`)
    const lazy = await putFunction(
      project.ref,
      `export const start = async () => { throw new Error(${JSON.stringify(message)}) }`,
    )
    await fetch(new URL(`/p/${project.ref}/functions/v1/${slug}`, baseUrl))
    await fetch(new URL(`/p/${project.ref}/functions/v1/${lazy.slug}`, baseUrl))
    await vi.waitFor(async () => {
      expect(await invocationsOf(id)).toHaveLength(1)
      expect((await invocationsOf(lazy.id))[0]?.console.at(-1)?.message).toMatch(/x\ufffd$/)
    }, WAIT)
  })

  it('is written, however many arrive at once', async () => {
    const { call, written } = await deployed(`return new Response('x')`)
    await Promise.all(Array.from({ length: 100 }, () => call()))
    expect(new Set((await written(100)).map(({ id }) => id)).size).toBe(100)
  })

  it('is deleted after a week', async () => {
    const DAY_MS = 86_400_000
    const programId = randomUUID()
    const row = {
      projectRef: project.ref,
      kind: 'function',
      programId,
      deploymentId: randomUUID(),
      method: 'GET',
      path: '/',
    } as const
    const at = (days: number) => new Date(Date.now() - days * DAY_MS)
    const rows = [...Array.from({ length: 6_000 }, () => 7.01), 6.9].map((days) => ({
      ...row,
      status: 200,
      ms: 1,
      console: [],
      at: at(days),
    }))
    for (let from = 0; from < rows.length; from += 1_000)
      await control.insert(invocations).values(rows.slice(from, from + 1_000))
    await tick()
    await vi.waitFor(async () => expect(await invocationsOf(programId)).toHaveLength(1), WAIT)
  })
})
