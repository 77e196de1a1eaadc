import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { exchange, newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, codeOf, openSql } from '../../support/storage-http.ts'

let storage: TestStorage
let service: ReturnType<typeof calling>
let bucket: string
let authorization: string
beforeAll(async () => {
  storage = await newStorage()
  authorization = `Bearer ${storage.keys.service}`
  service = calling(storage, storage.keys.service)
  bucket = await newBucket(storage)
})

const inHeader = (json: string) => ({ 'x-metadata': Buffer.from(json).toString('base64') })

/** Returns the text on the wire, because a client would parse the numbers. */
async function textOf(name: string): Promise<string> {
  const { body } = await exchange(`${storage.url}/object/info/${bucket}/${name}`, { headers: { authorization } })
  return body
}

const NUMBERS =
  '{"a": [9007199254740993, -12345678901234567890, 0.10000000000000000001], "b": {"c": 1.0, "d": 7, "e": 1.5}}'

describe('the metadata of a user', () => {
  it.each([
    ['in the order and with the spaces of Postgres', '{"bb":1,"a":2,"1":{}}', '{"1": {}, "a": 2, "bb": 1}'],
    [
      'without NUL characters',
      String.raw`{"\u0000a\u0000":"\u0000b\\u0000","c":"\\\u0000"}`,
      String.raw`{"a": "b\\u0000", "c": "\\"}`,
    ],
    ['with digits in its texts', '{"a":"1e100000\\"1e2000000"}', '{"a": "1e100000\\"1e2000000"}'],
    ['as an empty object if it is another value', '[1]', '{}'],
    ['as an empty object if it is not JSON', '{"a":1', '{}'],
  ])('is returned %s', async (_, sent, stored) => {
    const name = randomUUID()
    expect(codeOf(await service(`POST /object/${bucket}/${name}`, { body: 'x', headers: inHeader(sent) }))).toBe(200)
    expect(await textOf(name)).toContain(`"metadata":${stored}}`)
  })

  it('that is null in the database is an empty object', async () => {
    await service(`POST /object/${bucket}/null`, { body: 'x' })
    const { sql, close } = await openSql(storage)
    try {
      for (const value of ["'null'", 'null']) {
        await sql(`update storage.objects set user_metadata = ${value} where name = 'null'`)
        expect((await service(`GET /object/info/${bucket}/null`)).body.metadata).toEqual({})
      }
    } finally {
      await close()
    }
  })
})

describe('numbers in the metadata of a user', () => {
  it('are returned as they were written', async () => {
    expect(codeOf(await service(`POST /object/${bucket}/a`, { body: 'x', headers: inHeader(NUMBERS) }))).toBe(200)
    expect(await textOf('a')).toContain(`"metadata":${NUMBERS}}`)
  })

  it("are copied unchanged, or replaced by the copy's", async () => {
    const copy = async (destinationKey: string, fields = {}, headers = {}) => {
      const { status, body } = await exchange(`${storage.url}/object/copy`, {
        method: 'POST',
        headers: { authorization, 'content-type': 'application/json', ...headers },
        body: JSON.stringify({ bucketId: bucket, sourceKey: 'source', destinationKey, ...fields }),
      })
      expect(status).toBe(200)
      return body
    }
    await service(`POST /object/${bucket}/source`, { body: 'x', headers: inHeader(NUMBERS) })
    expect(await copy('b')).toContain(`"user_metadata":${NUMBERS}`)
    expect(await textOf('b')).toContain(`"metadata":${NUMBERS}}`)
    const other = '{"n": 36893488147419103233}'
    expect(await copy('c', { copyMetadata: false }, inHeader(other))).toContain(`"user_metadata":${other}`)
    expect(await textOf('c')).toContain(`"metadata":${other}}`)
  })

  it('are returned as Postgres writes them, beyond the range of a double', async () => {
    await service(`POST /object/${bucket}/far`, { body: 'x', headers: inHeader('{"n":1e400}') })
    expect(await textOf('far')).toContain(`"metadata":{"n": 1${'0'.repeat(400)}}}`)
  })

  it('are refused if they are too large for Postgres', async () => {
    const reply = await service(`POST /object/${bucket}/too-far`, { body: 'x', headers: inHeader('{"n":1e200000}') })
    expect(codeOf(reply)).toBe('InvalidParameter')
    expect(codeOf(await service(`GET /object/info/${bucket}/too-far`))).toBe('NoSuchKey')
  })

  it('are refused if they are short in the request and large in storage', async () => {
    const many = (count: number) => inHeader(`{"n":[${Array(count).fill('1e100000').join()}]}`)
    expect(codeOf(await service(`POST /object/${bucket}/much`, { body: 'x', headers: many(10) }))).toBe(200)
    const upsert = { ...many(11), 'x-upsert': 'true' }
    expect(codeOf(await service(`POST /object/${bucket}/much`, { body: 'y', headers: upsert }))).toBe(
      'InvalidParameter',
    )
    expect((await service(`GET /object/${bucket}/much`)).body).toBe('x')
  })
})

describe('the time of an object', () => {
  it('is that of its move, because an earlier object of that name may be younger', async () => {
    const at = (time: string) => ({ 'x-test-clock': String(Date.parse(time)) })
    const readers = async () => (await service(`GET /object/${bucket}/moved`)).headers.get('last-modified')
    const move = { bucketId: bucket, sourceKey: 'older', destinationKey: 'moved' }
    await service(`POST /object/${bucket}/older`, { body: 'old', headers: at('2026-05-01T00:00:00Z') })
    await service(`POST /object/${bucket}/moved`, { body: 'new', headers: at('2026-05-02T00:00:00Z') })
    await service(`DELETE /object/${bucket}/moved`)
    const moved = await service('POST /object/move', { body: move, headers: at('2026-05-03T00:00:00Z') })
    expect(codeOf(moved)).toBe(200)
    expect(await readers()).toBe('Sun, 03 May 2026 00:00:00 GMT')
    const headers = { 'if-modified-since': 'Sat, 02 May 2026 00:00:00 GMT' }
    expect(await service(`GET /object/${bucket}/moved`, { headers })).toMatchObject({ status: 200, body: 'old' })
  })
})
