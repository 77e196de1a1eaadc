import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readForm } from '../../../src/services/storage/form.ts'
import { startBucket } from './bucket.ts'
import { startBlobsWorker } from './harness.ts'

const MIB = 1024 ** 2

let bucket: Awaited<ReturnType<typeof startBucket>>
let worker: Awaited<ReturnType<typeof startBlobsWorker>>
beforeAll(async () => {
  bucket = await startBucket()
  worker = await startBlobsWorker(bucket.endpoint)
})
afterAll(async () => {
  await worker.stop()
  await bucket.stop()
})

interface Upload {
  body: BodyInit
  contentType?: string
  sizeMax?: number
}

async function upload({ body, contentType, sizeMax = 50 * MIB }: Upload) {
  const key = `form/${randomUUID()}`
  const response = await fetch(worker.url('form', { key, sizeMax }), {
    method: 'POST',
    body,
    headers: contentType ? { 'content-type': contentType } : {},
    duplex: 'half',
  } as RequestInit)
  const reply = JSON.parse(await response.text())
  const stored = Buffer.from(await (await fetch(worker.url('get', { key }))).arrayBuffer())
  return { reply, stored }
}

const BOUNDARY = '----boundary-1'
const TYPE = `multipart/form-data; boundary=${BOUNDARY}`
const part = (head: string, value: string) =>
  `--${BOUNDARY}\r\nContent-Disposition: form-data; ${head}\r\n\r\n${value}\r\n`
const field = (name: string, value = 'x') => part(`name="${name}"`, value)
const file = (value: string, type = 'text/plain') => part(`name=""; filename="a.txt"\r\nContent-Type: ${type}`, value)
const END = `--${BOUNDARY}--\r\n`

const streamOf = (pieces: readonly Uint8Array[]) =>
  new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece)
      controller.close()
    },
  })

async function refusal(form: Partial<Upload>) {
  const { reply, stored } = await upload({ body: '', contentType: TYPE, ...form })
  expect(stored.length).toBe(0)
  return `${reply.name}: ${reply.message}`
}

describe('a form', () => {
  it.each([0, 1, 100_000, 6 * MIB])('yields its file of %d bytes and the fields around it', async (size) => {
    const bytes = randomBytes(size)
    const form = new FormData()
    form.append('cacheControl', '3600')
    form.append('metadata', '{"ünï":"cödé"}')
    form.append('', new Blob([bytes], { type: 'text/plain;charset=UTF-8' }), 'näme.txt')
    form.append('contentType', 'image/png')
    const { reply, stored } = await upload({ body: form })
    const before = { cacheControl: '3600', metadata: '{"ünï":"cödé"}' }
    expect(reply).toMatchObject({ before, contentType: 'text/plain;charset=utf-8', stored: { size } })
    expect(reply.after).toEqual({ ...before, contentType: 'image/png' })
    expect(stored.equals(bytes)).toBe(true)
  })

  it.each([BOUNDARY, 'x', '-', 'a---'])(
    'is read alike wherever its chunks end, with the boundary %s',
    async (boundary) => {
      const value = `a\r\n--${boundary.slice(0, -1)}\r\n-\r\r\n--`
      const text = (field('before', '--') + file(value) + field('after', '') + END).replaceAll(BOUNDARY, boundary)
      const bytes = Buffer.from(text)
      const cuts = [...bytes.keys()].map((cut) => [bytes.subarray(0, cut), bytes.subarray(cut)])
      for (const pieces of [...cuts, [...bytes].map((byte) => Uint8Array.of(byte))]) {
        const form = await readForm(`multipart/form-data; boundary=${boundary}`, streamOf(pieces))
        expect(await new Response(form.file?.body).text()).toBe(value)
        expect([...form.fields]).toEqual(Object.entries({ before: '--', after: '' }))
      }
    },
  )

  it('without a file yields none', async () => {
    const { reply } = await upload({ body: field('a') + END, contentType: TYPE })
    expect(reply).toEqual({ before: { a: 'x' }, after: { a: 'x' } })
  })

  it('has a file of unknown bytes if its part has no content type', async () => {
    const body = part('name="f"; filename="a"', 'abc') + END
    expect((await upload({ body, contentType: TYPE })).reply.contentType).toBe('application/octet-stream')
  })

  it('is read with any text around it, in any case, and with a quoted boundary', async () => {
    const latin1 = part('name="a"\r\nContent-Type: text/plain; charset=iso-8859-1', '\xe9')
    const body = Buffer.from(`before\r\n${latin1}${file('abc')}${END}\r\nbehind: \0\r\n`, 'latin1')
    const { reply, stored } = await upload({ body, contentType: `multipart/form-data; boundary="${BOUNDARY}"` })
    expect([reply.after, stored.toString()]).toEqual([{ a: 'é' }, 'abc'])
  })

  it.each([
    ['no boundary', { contentType: 'multipart/form-data' }, 'InvalidBoundary'],
    ['an empty boundary', { contentType: 'multipart/form-data; boundary=' }, 'InvalidBoundary'],
    ['no bytes', {}, 'EndNotReached'],
    ['no end', { body: file('abc') }, 'EndNotReached'],
    ['half an end', { body: `${file('abc')}--${BOUNDARY}-` }, 'EndNotReached'],
    ['an end within a field', { body: field('a').slice(0, -3) }, 'EndNotReached'],
    ['two files', { body: file('a') + file('b') + END }, 'it must have only one file'],
    ['a field without a name', { body: part('x="a"', 'b') + END }, 'InvalidDisposition'],
    ['too many headers', { body: part(`name="a"${'\r\na: b'.repeat(200)}`, 'b') + END }, 'BadHeaders TooManyHeaders'],
    [
      'too long a header',
      { body: part(`name="a"\r\na: ${'b'.repeat(20_000)}`, 'b') + END },
      'BadHeaders HeaderTooLarge',
    ],
    [
      'a header without end',
      { body: part('name="a"', 'b').replace('\r\n\r\n', `\r\nx: ${'b'.repeat(MIB)}`) },
      'BadHeaders HeaderTooLarge',
    ],
    ['too many fields', { body: field('a').repeat(12) + END }, 'ReachedLimit MaxParts'],
    ['too long a field', { body: field('a', 'b'.repeat(2 * MIB)) + END }, 'the fields must have at most 1064960 bytes'],
    [
      'too long a field behind the file',
      { body: file('a') + field('a', 'b'.repeat(2 * MIB)) + END },
      'the fields must have at most 1064960 bytes',
    ],
  ])('with %s is refused, and nothing is stored', async (_, form: Partial<Upload>, message) => {
    expect(await refusal(form)).toBe(`FormMalformed: ${message}`)
  })

  it('may have ten fields of one mebibyte together', async () => {
    const fieldsOf = (bytes: number) =>
      Array.from({ length: 10 }, (_, n) => field(String(n), 'b'.repeat(bytes))).join('') + file('abc') + END
    const { reply } = await upload({ body: fieldsOf(MIB / 10), contentType: TYPE })
    expect(Object.keys(reply.before)).toHaveLength(10)
    expect(await refusal({ body: fieldsOf(MIB / 5) })).toContain('the fields must have at most')
  })

  it('is refused during the upload if its file is too long', async () => {
    const upload = request(worker.url('form', { key: 'form/long', sizeMax: 100_000 }), {
      method: 'POST',
      headers: { 'content-type': TYPE },
    })
    upload.on('error', () => {})
    upload.write(file('a'.repeat(300_000)))
    const [response] = await once(upload, 'response')
    expect(JSON.parse((await response.toArray()).join('')).name).toBe('BlobTooLarge')
    upload.destroy()
  })
})
