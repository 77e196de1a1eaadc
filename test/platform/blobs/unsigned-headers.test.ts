import { randomUUID } from 'node:crypto'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { getSignedUrl } from '@aws-sdk/s3-request-presigner'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startS3 } from '../../../dev/s3.ts'

const BUCKET = 'objects'
const CREDENTIALS = { accessKeyId: 'key', secretAccessKey: 'secret' }
let stop: () => Promise<void>
let client: S3Client
beforeAll(async () => {
  const s3 = await startS3({ buckets: [BUCKET], ...CREDENTIALS })
  stop = s3.stop
  client = new S3Client({
    ...{ endpoint: s3.endpoint, region: 'auto', credentials: CREDENTIALS, forcePathStyle: true },
    requestChecksumCalculation: 'WHEN_REQUIRED',
  })
  await client.send(new PutObjectCommand({ Bucket: BUCKET, Key: 'secret', Body: 'of another tenant' }))
})
afterAll(() => stop())

const slot = (Key: string, Metadata?: Record<string, string>) =>
  getSignedUrl(client, new PutObjectCommand({ Bucket: BUCKET, Key, ...(Metadata && { Metadata }) }), {
    expiresIn: 60,
    unhoistableHeaders: new Set(Object.keys(Metadata ?? {}).map((name) => `x-amz-meta-${name}`)),
  })

describe('a presigned upload', () => {
  it.each([
    ['x-amz-copy-source', `/${BUCKET}/secret`],
    ['X-Amz-Copy-Source', `${BUCKET}/secret`],
    ['x-amz-meta-mine', 'a'],
    ['x-amz-acl', 'public-read'],
    ['x-amz-tagging', 'a=b'],
    ['x-amz-server-side-encryption-customer-key', 'a'],
    ['x-amz-content-sha256', 'UNSIGNED-PAYLOAD'],
  ])('is refused with the header %s, which its URL does not sign', async (name, value) => {
    const url = await slot(randomUUID())
    const response = await fetch(url, { method: 'PUT', headers: { [name]: value }, body: 'mine' })
    expect(response.status).toBe(403)
    const text = await response.text()
    expect(text).toContain('<Code>AccessDenied</Code>')
    expect(text).toContain(`<HeadersNotSigned>${name.toLowerCase()}</HeadersNotSigned>`)
    const upload = await fetch(url, { method: 'PUT', body: 'mine' })
    expect(upload.status).toBe(200)
  })

  it('accepts a header that its URL signs', async () => {
    const url = await slot(randomUUID(), { mine: 'a' })
    const send = (value: string) => fetch(url, { method: 'PUT', headers: { 'x-amz-meta-mine': value }, body: 'mine' })
    expect((await send('a')).status).toBe(200)
    expect((await send('b')).status).toBe(403)
  })
})

it('a read without a signature is refused', async () => {
  const { origin } = new URL(await slot('any'))
  for (const path of [`/cdn-cgi/local/r2/public/${BUCKET}/secret`, `/cdn-cgi/local/r2/s3/${BUCKET}/secret`]) {
    const response = await fetch(origin + path)
    expect(response.ok).toBe(false)
    expect(await response.text()).not.toContain('tenant')
  }
})

it.each(['Host: a\r\nHost: b', 'Host: a b'])('a request with the header %j is refused', async (header) => {
  const { hostname, port } = new URL(await slot('any'))
  const socket = connect(Number(port), hostname)
  socket.write(`GET / HTTP/1.1\r\n${header}\r\nConnection: close\r\n\r\n`)
  expect(await text(socket)).toMatch(/^HTTP\/1.1 400 /)
})
