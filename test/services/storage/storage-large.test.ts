import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { extended } from '../../support/extended.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { newBucket } from '../../support/storage.ts'
import { type Installation, type SweptStorage, startInstallation } from '../../support/storage-installation.ts'

const MIB = 1024 ** 2
/** More than one read from the bucket returns, and not a multiple of its parts. */
const LARGE = randomBytes(70 * MIB + 7)

/** An installation as users run it: the proxy before the Worker of other tests does not survive broken transfers. */
let installation: Installation
let storage: SweptStorage
let path: string
beforeAll(async () => {
  installation = await startInstallation({ serve: serveLikeStart })
  storage = await installation.newStorage()
  const { organization, ref } = storage
  const config = { fileSizeLimit: LARGE.length }
  expect((await organization.owner.patch(`/v1/projects/${ref}/config/storage`, config)).status).toBe(200)
  path = `object/${storage.bucket}/large`
  const sending = open('POST', path, { 'transfer-encoding': 'chunked' })
  sending.end(LARGE)
  const [uploaded] = (await once(sending, 'response')) as [IncomingMessage]
  expect([uploaded.statusCode, JSON.parse((await buffer(uploaded)).toString()).Id]).toEqual([200, expect.any(String)])
})
afterAll(() => installation.stop())

const open = (method: string, to: string, headers: Record<string, string> = {}): ClientRequest =>
  request(`${storage.url}/${to}`, {
    method,
    headers: { authorization: `Bearer ${storage.keys.service}`, ...headers },
    agent: false,
  })

async function get(headers: Record<string, string> = {}) {
  const [reply] = (await once(open('GET', path, headers).end(), 'response')) as [IncomingMessage]
  return reply
}

describe('a request on the wire', () => {
  it.each(['a/../b', 'a/./b', 'a/%2e%2E/b', 'a/.%2e/b', '..', 'a/.?x=1', 'a\\..\\b'])(
    'is refused if the URL standard would resolve its key: %s',
    async (key) => {
      for (const method of ['POST', 'GET', 'DELETE']) {
        const asIs = request({
          ...{ method, host: '127.0.0.1', port: new URL(storage.url).port, agent: false },
          path: `${new URL(storage.url).pathname}/object/${storage.bucket}/${key}`,
          headers: { authorization: `Bearer ${storage.keys.service}` },
        })
        const [reply] = (await once(asIs.end(), 'response')) as [IncomingMessage]
        const body = JSON.parse((await buffer(reply)).toString())
        expect([reply.statusCode, body]).toMatchObject([400, { code: 'InvalidKey' }])
      }
    },
  )

  it('may have any dots in its query', async () => {
    const [reply] = (await once(open('HEAD', `${path}?download=a/../b`).end(), 'response')) as [IncomingMessage]
    expect(reply.statusCode).toBe(200)
  })

  it('is refused while its body is still arriving', async () => {
    const strict = await newBucket(storage, { file_size_limit: 1000 })
    const known = { 'content-length': String(20 * MIB) }
    const chunked = { 'transfer-encoding': 'chunked' }
    const form = { 'content-type': 'multipart/form-data; boundary=x' }
    const tus = { 'tus-resumable': '1.0.0', 'upload-length': '99', 'content-type': 'application/offset+octet-stream' }
    const answers = await Promise.all([
      answerTo(path, known),
      answerTo(path, { ...known, ...form }),
      answerTo(`object/${strict}/raw`, chunked),
      answerTo(`object/${strict}/form`, { ...chunked, ...form }),
      answerTo('upload/resumable', { ...known, ...tus }),
    ])
    expect(answers).toEqual([
      ...Array(2).fill(expect.stringContaining('KeyAlreadyExists')),
      ...Array(2).fill(expect.stringContaining('EntityTooLarge')),
      expect.stringContaining('Upload-Metadata'),
    ])
  })

  /**
   * Returns the answer to a request with only its first bytes: the server waits 5 s for more before it disconnects.
   */
  async function answerTo(to: string, headers: Record<string, string>): Promise<string> {
    const sending = open('POST', to, headers)
    const answered = once(sending, 'response').then(([reply]) => buffer(reply as IncomingMessage))
    sending.write('--x\r\ncontent-disposition: form-data; name=""; filename="a"\r\n\r\n')
    sending.write(randomBytes(MIB))
    const answer = await Promise.race([answered, once(AbortSignal.timeout(4_500), 'abort')])
    sending.on('error', () => {}).destroy()
    return answer.toString()
  }
})

describe('a large object that was uploaded in parts', () => {
  it('is returned complete', async () => {
    const reply = await get()
    expect(reply).toMatchObject({ statusCode: 200, headers: { 'content-length': String(LARGE.length) } })
    expect(reply.headers.etag).toMatch(/-\d+"$/)
    expect(LARGE.equals(await buffer(reply))).toBe(true)
  })

  it.each([
    ['short', 10 * MIB, 100],
    ['to the end', 69 * MIB, MIB + 7],
    ['longer than is read at once', 3, 66 * MIB],
  ])('returns a range of it that is %s', async (_, offset, length) => {
    const range = `bytes=${offset}-${offset + length - 1}`
    const reply = await get({ range })
    expect(reply.statusCode).toBe(206)
    expect(reply.headers['content-range']).toBe(`${range.replace('=', ' ')}/${LARGE.length}`)
    expect(LARGE.subarray(offset, offset + length).equals(await buffer(reply))).toBe(true)
  })

  it('is not sent to a client that has it cached', async () => {
    const first = await get()
    first.destroy()
    const reply = await get({ 'if-none-match': first.headers.etag ?? '' })
    expect([reply.statusCode, (await buffer(reply)).length]).toEqual([304, 0])
  })

  extended('can be canceled in the middle, and read again', async () => {
    const left = await get()
    await once(left, 'data')
    left.destroy()
    expect(LARGE.equals(await buffer(await get()))).toBe(true)
  })
})
