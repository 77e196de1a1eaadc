import { createServer, type RequestListener } from 'node:http'
import { isDeepStrictEqual } from 'node:util'
import { gzipSync } from 'node:zlib'
import pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import { capture, isSuccess, toReplyBody } from '../../../src/outbound/webhooks/response-capture.ts'
import { drawFrom } from '../../faults/random.ts'
import { isExtended } from '../../support/extended.ts'
import { listenOnFreePort } from '../../support/listen.ts'

const KIB = 1024
const quiet = () => new AbortController().signal
const bytesOf = (text: string) => new TextEncoder().encode(text)
const sizeBytes = (text: string) => Buffer.byteLength(text)

/** A body of the given chunks that then ends, fails with `error`, or sends nothing more. */
function stream(chunks: Uint8Array[], end: 'close' | 'hang' | { error: unknown } = 'close', onCancel = () => {}) {
  const left = [...chunks]
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      const chunk = left.shift()
      if (chunk) controller.enqueue(chunk)
      else if (end === 'close') controller.close()
      else if (end !== 'hang') controller.error(end.error)
      else return new Promise(() => {})
    },
    cancel: onCancel,
  })
}

/** A response as the network may bring it, also with a status and headers that the constructor would refuse. */
function received(body: BodyInit | null, { status = 200, headers = [] as [string, string][] } = {}): Response {
  const response = new Response(body)
  Object.defineProperty(response, 'status', { value: status })
  const list = new Headers()
  for (const [name, value] of headers) list.append(name, value)
  Object.defineProperty(response, 'headers', { value: list })
  return response
}

describe('what is stored of a response', () => {
  it('is its code, its headers and its body', async () => {
    const response = received('{"ok":true}', {
      status: 201,
      headers: [
        ['X-Request-Id', 'a1'],
        ['content-type', 'application/json'],
      ],
    })
    expect(await capture(response, quiet())).toEqual({
      code: 201,
      headers: { 'content-type': 'application/json', 'x-request-id': 'a1' },
      body: '{"ok":true}',
      isTruncated: false,
    })
  })

  it('is an empty body when there is none', async () => {
    const nothing = { code: 204, headers: {}, body: '', isTruncated: false }
    expect(await capture(received(null, { status: 204 }), quiet())).toEqual(nothing)
    expect(await capture(received(stream([]), { status: 204 }), quiet())).toEqual(nothing)
    expect(await capture(received(null, { status: 204 }), AbortSignal.abort())).toEqual(nothing)
  })

  it.each([0, 99, 100, 101, 103, 304, 404, 600, 999])('is the received code %i', async (status) => {
    expect(await capture(received('', { status }), quiet())).toMatchObject({ code: status })
  })

  it.each([-1, 1000, Number.NaN])('is 0 for the impossible code %d', async (status) => {
    expect(await capture(received('', { status }), quiet())).toMatchObject({ code: 0 })
  })

  it('joins the cookies into one value', async () => {
    const response = received('', {
      headers: [
        ['set-cookie', 'a=1; Path=/'],
        ['x-b', '2'],
        ['Set-Cookie', 'c=3'],
      ],
    })
    expect((await capture(response, quiet())).headers).toEqual({ 'set-cookie': 'a=1; Path=/, c=3', 'x-b': '2' })
  })

  it('counts the joined cookies once', async () => {
    const cookies = Array.from({ length: 10 }, (_, i): [string, string] => ['set-cookie', `${i}=${'v'.repeat(1000)}`])
    const { headers } = await capture(received('', { headers: [...cookies, ['x-after', 'kept']] }), quiet())
    expect(headers).toEqual({ 'set-cookie': expect.stringMatching(/^0=v+, 1=v+/), 'x-after': 'kept' })
  })

  it('repairs header values that a runtime decoded to text that Postgres refuses', async () => {
    const response = new Response('')
    Object.defineProperty(response, 'headers', { value: new Map([['x-a', 'half \ud83d nul \0 whole 🚀']]) })
    expect((await capture(response, quiet())).headers).toEqual({ 'x-a': 'half \ufffd nul  whole 🚀' })
  })

  it('includes a header whose name is special in objects', async () => {
    const { headers } = await capture(
      received('', {
        headers: [
          ['__proto__', 'own'],
          ['constructor', 'own'],
        ],
      }),
      quiet(),
    )
    expect(Object.entries(headers)).toEqual([
      ['__proto__', 'own'],
      ['constructor', 'own'],
    ])
  })

  it('is limited to 100 headers and 16 KiB of them, with truncated values', async () => {
    const many = Array.from({ length: 5000 }, (_, i): [string, string] => [`x-${i}`, 'v'])
    expect(Object.keys((await capture(received('', { headers: many }), quiet())).headers)).toHaveLength(100)

    const long = await capture(
      received('', {
        headers: [
          ['a', 'v'.repeat(200_000)],
          ['location', '/next'],
        ],
      }),
      quiet(),
    )
    expect(long.headers).toEqual({ a: 'v'.repeat(4 * KIB), location: '/next' })

    const wide = Array.from({ length: 10 }, (_, i): [string, string] => [`x-${i}`, 'é'.repeat(3000)])
    const { headers } = await capture(received('', { headers: wide }), quiet())
    const total = Object.entries(headers).flat().map(sizeBytes)
    expect(total.reduce((sum, size) => sum + size)).toBe(16 * KIB)
    expect(headers['x-0']).toBe('é'.repeat(2 * KIB))
    expect(Object.keys(headers)).toEqual(['x-0', 'x-1', 'x-2', 'x-3'])
  })

  it('replaces bytes that are not UTF-8 and leaves out NUL', async () => {
    const body = new Uint8Array([0x61, 0x00, 0xff, 0x62, 0xc3, 0x28, 0xed, 0xa0, 0x80, 0xe4, 0xb8])
    expect(await capture(received(body), quiet())).toMatchObject({
      body: 'a\ufffdb\ufffd(\ufffd\ufffd\ufffd\ufffd',
      isTruncated: false,
    })
  })

  it('decodes characters that are split across chunks', async () => {
    const chunks = Array.from(bytesOf('Grüße, 世界 🚀'), (byte) => new Uint8Array([byte]))
    expect(await capture(received(stream(chunks)), quiet())).toMatchObject({
      body: 'Grüße, 世界 🚀',
      isTruncated: false,
    })
  })

  it.each([
    [64 * KIB - 1, 64 * KIB - 1, false],
    [64 * KIB, 64 * KIB, false],
    [64 * KIB + 1, 64 * KIB, true],
    [10_000_000, 64 * KIB, true],
  ])('of a body of %i bytes is %i', async (sent, kept, isTruncated) => {
    const whole = await capture(received('x'.repeat(sent)), quiet())
    expect([whole.body.length, whole.isTruncated]).toEqual([kept, isTruncated])
    const pieces = Array.from({ length: Math.ceil(sent / 997) }, (_, i) =>
      bytesOf('x'.repeat(Math.min(997, sent - 997 * i))),
    )
    const chunked = await capture(received(stream(pieces)), quiet())
    expect([chunked.body.length, chunked.isTruncated]).toEqual([kept, isTruncated])
  })

  it.each([0, 1, 2, 3])('is cut between two characters, %i bytes before the limit', async (offset) => {
    const { body, isTruncated } = await capture(received('x'.repeat(offset) + '🚀'.repeat(20_000)), quiet())
    expect(isTruncated).toBe(true)
    expect(body).toBe('x'.repeat(offset) + '🚀'.repeat((64 * KIB - offset) / 4))
  })

  it('is at most 64 KiB, also if replacements made it longer', async () => {
    const { body, isTruncated } = await capture(received(new Uint8Array(64 * KIB).fill(0xff)), quiet())
    expect([sizeBytes(body), body.replaceAll('\ufffd', ''), isTruncated]).toEqual([64 * KIB - 1, '', true])
  })

  it('is what came before the body failed', async () => {
    const error = new Error('Network connection lost.')
    const broken = received(stream([bytesOf('part 世').slice(0, -1)], { error }), {
      status: 500,
      headers: [['x-a', 'b']],
    })
    expect(await capture(broken, quiet())).toEqual({
      code: 500,
      headers: { 'x-a': 'b' },
      body: 'part ',
      isTruncated: true,
      readError: error,
    })
  })

  it.each([undefined, null, 0, ''])('says so if the body fails with %j', async (error) => {
    const { readError, isTruncated } = await capture(received(stream([], { error })), quiet())
    expect(readError).toBeInstanceOf(Error)
    expect(isTruncated).toBe(true)
  })

  it('is what came before the signal, and the rest is canceled', async () => {
    const control = new AbortController()
    const canceled = Promise.withResolvers<void>()
    const reading = capture(received(stream([bytesOf('part')], 'hang', canceled.resolve)), control.signal)
    await new Promise(setImmediate)
    control.abort(new DOMException('too slow', 'TimeoutError'))
    expect(await reading).toMatchObject({
      code: 200,
      body: 'part',
      isTruncated: true,
      readError: { name: 'TimeoutError' },
    })
    await canceled.promise
  })

  it('is its code and headers if the signal came before the body', async () => {
    const captured = await capture(received(stream([], 'hang'), { headers: [['x-a', 'b']] }), AbortSignal.abort())
    expect(captured).toMatchObject({
      code: 200,
      headers: { 'x-a': 'b' },
      body: '',
      isTruncated: true,
      readError: { name: 'AbortError' },
    })
  })

  it('is its code and headers if the body is read elsewhere', async () => {
    const response = received('body')
    await response.text()
    expect(await capture(response, quiet())).toMatchObject({
      code: 200,
      body: '',
      isTruncated: true,
      readError: expect.any(TypeError),
    })
  })

  it('does not include the rest of a body that is too large, which is canceled without waiting', async () => {
    const canceled = Promise.withResolvers<void>()
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(KIB)),
      cancel() {
        canceled.resolve()
        return new Promise(() => {})
      },
    })
    expect(await capture(received(endless), quiet())).toMatchObject({ isTruncated: true })
    await canceled.promise
  })

  it('leaves no listener on the signal', async () => {
    const { signal } = new AbortController()
    const listeners = new Set<unknown>()
    signal.addEventListener = (_type: string, listener: unknown) => void listeners.add(listener)
    signal.removeEventListener = (_type: string, listener: unknown) => void listeners.delete(listener)
    const reading = capture(received('body'), signal)
    expect(listeners.size).toBe(1)
    await reading
    expect(listeners.size).toBe(0)
  })
})

describe('what is stored of a real response', () => {
  it('is 64 KiB of an endless one, whose connection is then closed', async () => {
    const closed = Promise.withResolvers<void>()
    const captured = await from(async (_req, res) => {
      res.on('close', closed.resolve)
      res.on('drain', () => res.write(Buffer.alloc(KIB, 'x')))
      while (res.write(Buffer.alloc(KIB, 'x')));
    })
    expect(captured).toMatchObject({ code: 200, body: 'x'.repeat(64 * KIB), isTruncated: true })
    expect(captured).not.toHaveProperty('readError')
    await closed.promise
  })

  it('is 64 KiB of a gzip bomb', async () => {
    const bomb = gzipSync(Buffer.alloc(50_000_000, 'x'))
    const captured = await from((_req, res) => res.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb))
    expect(captured).toMatchObject({ body: 'x'.repeat(64 * KIB), isTruncated: true })
  })

  it('is the part that came before a connection reset', async () => {
    const captured = await from((_req, res) => {
      res.writeHead(200, { 'content-length': '100' }).write('part', () => res.destroy())
    })
    expect(captured).toMatchObject({ code: 200, body: 'part', isTruncated: true, readError: expect.any(Error) })
  })

  it('is the part that came within the time limit', async () => {
    const captured = await from((_req, res) => void res.write('part'), AbortSignal.timeout(300))
    expect(captured).toMatchObject({ code: 200, body: 'part', isTruncated: true, readError: { name: 'TimeoutError' } })
  })
})

const RANDOM = isExtended ? 20_000 : 2_000

describe(`${RANDOM} random responses`, () => {
  it('are stored without an exception, within the limits, as text that Postgres accepts', async () => {
    const random = drawFrom(3)
    const kept: { headers: Record<string, string>; body: string }[] = []
    const broken: unknown[] = []
    for (let i = 0; i < RANDOM; i++) {
      const captured = await capture(randomResponse(random), quiet())
      if (!isWithinBounds(captured)) broken.push(captured)
      kept.push({ headers: captured.headers, body: captured.body })
    }
    expect(broken).toEqual([])
    await expectPostgresHolds(kept)
  })
})

describe('a body as the API shows it', () => {
  it.each([
    ['', null],
    ['{"message":"ok","code":"1"}', { message: 'ok', code: '1' }],
    [' {"a":"b"}\n', { a: 'b' }],
    ['{}', {}],
    ['{"a":1}', '{"a":1}'],
    ['{"a":null}', '{"a":null}'],
    ['{"a":{"b":"c"}}', '{"a":{"b":"c"}}'],
    ['["a"]', '["a"]'],
    ['[]', '[]'],
    ['null', 'null'],
    ['true', 'true'],
    ['1', '1'],
    ['"text"', '"text"'],
    [' ', ' '],
    ['ok', 'ok'],
    ['{"a":"b"', '{"a":"b"'],
  ])('of %j is %j', (body, shown) => {
    expect(toReplyBody(body)).toEqual(shown)
  })

  it('is an object even with a key that is special in objects', () => {
    expect(JSON.stringify(toReplyBody('{"__proto__":"a","b":"c"}'))).toBe('{"__proto__":"a","b":"c"}')
  })

  it('is text however deeply it nests', () => {
    const deep = '['.repeat(32 * KIB) + ']'.repeat(32 * KIB)
    expect(toReplyBody(deep)).toBe(deep)
  })
})

describe('success', () => {
  it('is a status of 200 to 299 and nothing else', () => {
    const codes = Array.from({ length: 1000 }, (_, code) => code).filter(isSuccess)
    expect(codes).toEqual(Array.from({ length: 100 }, (_, i) => 200 + i))
    expect([-200, 1200, Number.NaN, Number.POSITIVE_INFINITY].filter(isSuccess)).toEqual([])
  })
})

/** Captures the response of a real server. */
async function from(answer: RequestListener, signal = quiet()) {
  const server = createServer(answer)
  const port = await listenOnFreePort(server)
  try {
    return await capture(await fetch(`http://127.0.0.1:${port}`, { signal }), signal)
  } finally {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
}

function isWithinBounds({ code, headers, body, isTruncated, readError }: Awaited<ReturnType<typeof capture>>): boolean {
  const texts = Object.entries(headers).flat()
  return [
    Number.isInteger(code) && code >= 0 && code <= 999,
    Object.keys(headers).length <= 100,
    texts.reduce((sum, text) => sum + sizeBytes(text), 0) <= 16 * KIB,
    sizeBytes(body) <= 64 * KIB,
    [body, ...texts].every((text) => text.isWellFormed() && !text.includes('\0')),
    readError === undefined || isTruncated,
    isDeepStrictEqual(JSON.parse(JSON.stringify([toReplyBody(body)])), [toReplyBody(body)]),
  ].every(Boolean)
}

async function expectPostgresHolds(kept: { headers: Record<string, string>; body: string }[]) {
  const client = new pg.Client(inject('controlUrl'))
  await client.connect()
  try {
    for (let start = 0; start < kept.length; start += 500) {
      const batch = kept.slice(start, start + 500)
      const { rows } = await client.query('select unnest($1::jsonb[]) as headers, unnest($2::text[]) as body', [
        batch.map(({ headers }) => JSON.stringify(headers)),
        batch.map(({ body }) => body),
      ])
      expect(rows).toEqual(batch)
    }
  } finally {
    await client.end()
  }
}

type Random = (below: number) => number

/** Returns a usual size, and now and then one far beyond every limit. */
const randomSize = (random: Random, usual: number, huge: number) => random(random(100) === 0 ? huge : usual)

function randomResponse(random: Random): Response {
  const ends = ['close', 'close', 'close', { error: new Error('reset') }, { error: undefined }] as const
  const chunks = Array.from({ length: random(6) }, () => randomBytes(random, randomSize(random, 200, 80 * KIB)))
  const body = random(10) === 0 ? null : stream(chunks, ends[random(ends.length)])
  const headers = Array.from({ length: randomSize(random, 8, 300) }, (): [string, string] => [
    randomName(random),
    randomValue(random, randomSize(random, 60, 30_000)),
  ])
  return received(body, { status: random(1000), headers })
}

/** Returns any bytes, or text in which NUL, halves of surrogate pairs and JSON are common. */
function randomBytes(random: Random, length: number): Uint8Array {
  const pieces = ['\0', '\\u0000', '"\\ud800"', '{"a":"b"}', '{', '}', 'é', '世', '🚀', 'x', '\u202e', '\ufeff', '\x01']
  if (random(2) === 0) return Uint8Array.from({ length }, () => random(256))
  return bytesOf(Array.from({ length: Math.ceil(length / 4) }, () => pieces[random(pieces.length)]).join(''))
}

const randomName = (random: Random) =>
  ['set-cookie', '__proto__', 'location', "x!#$%&'*+.^_`|~"][random(20)] ?? `x-${random(1000)}`

/** Every character that a header can carry, from 0x01 to 0xff without the line breaks. */
const randomValue = (random: Random, length: number) =>
  Array.from({ length }, () => String.fromCharCode(1 + random(255)))
    .join('')
    .replace(/[\r\n]/g, '')
