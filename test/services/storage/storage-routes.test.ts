import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type * as z from 'zod'
import { isJsonText, isResponses, isStreamed, type Route } from '../../../src/services/storage/route.ts'
import { storageRoutes } from '../../../src/services/storage/routes.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { type Call, calling, codeOf } from '../../support/storage-http.ts'

let storage: TestStorage
let service: ReturnType<typeof calling>
let bucket: string
beforeAll(async () => {
  storage = await newStorage()
  service = calling(storage, storage.keys.service)
  bucket = await newBucket(storage, { public: true, allowed_mime_types: ['text/*'], file_size_limit: 1000 })
})

const newObject = async () => {
  const name = `folder/${randomUUID()}`
  const headers = { 'content-type': 'text/plain', 'x-metadata': btoa('{"by":"me"}') }
  expect((await service(`POST /object/${bucket}/${name}`, { body: 'text', headers })).status).toBe(200)
  return name
}
const plain = { 'content-type': 'text/plain' }

/** A request to each route with a JSON reply. `name` is that of an object. */
const REQUESTS: Record<string, (name: string) => Call & { path?: string }> = {
  'get-storage-health': () => ({}),
  'create-bucket': () => ({ body: { name: randomUUID() } }),
  'list-buckets': () => ({}),
  'get-bucket': () => ({}),
  'update-bucket': () => ({ body: { public: true } }),
  'delete-bucket': () => ({ path: '/bucket/{new}' }),
  'empty-bucket': () => ({ path: '/bucket/{new}/empty' }),
  'sign-upload-url': () => ({ path: `/object/upload/sign/{bucketName}/${randomUUID()}` }),
  'upload-to-signed-url': () => ({ path: '/object{upload}', headers: plain, body: 'text' }),
  'sign-objects': (name) => ({ body: { expiresIn: 60, paths: [name, 'missing'] } }),
  'sign-object': () => ({ body: { expiresIn: 60 } }),
  'copy-object': (name) => ({ body: { bucketId: bucket, sourceKey: name, destinationKey: randomUUID() } }),
  'move-object': (name) => ({ body: { bucketId: bucket, sourceKey: name, destinationKey: randomUUID() } }),
  'list-objects': () => ({ body: { prefix: 'folder/' } }),
  'list-objects-v2': () => ({ body: { limit: 1, with_delimiter: true } }),
  'get-public-object-info': () => ({}),
  'get-authenticated-object-info': () => ({}),
  'get-object-info': () => ({}),
  'upload-object': () => ({ path: `/object/{bucketName}/${randomUUID()}`, headers: plain, body: 'text' }),
  'replace-object': () => ({ headers: plain, body: 'text' }),
  'delete-objects': (name) => ({ body: { prefixes: [name] } }),
  'delete-object': () => ({}),
}

const jsonOf = ({ returns }: Route): z.ZodType | undefined =>
  isResponses(returns)
    ? returns.replies[200]?.content?.['application/json']
    : isJsonText(returns)
      ? returns.json
      : returns
const withJson = storageRoutes.filter((route) => jsonOf(route))

/** Replaces the parameters of a path. */
async function fill(path: string, name: string): Promise<string> {
  const created = path.includes('{new}') ? await newBucket(storage) : ''
  const signed = path.includes('{upload}')
    ? (await service(`POST /object/upload/sign/${bucket}/${randomUUID()}`)).body.url.replace(/^\/object/, '')
    : ''
  return path
    .replace('{new}', created)
    .replace('{upload}', signed)
    .replace(/\{bucket(Id|Name)\}/, bucket)
    .replace('{wildcard}', name)
}

describe.each(withJson)('$method $path', (route) => {
  it('replies with the fields that its row publishes, and no others', async () => {
    const name = await newObject()
    const { path = route.path, ...call } = REQUESTS[route.id]?.(name) ?? {}
    const { status, body } = await service(`${route.method} ${await fill(path, name)}`, call)
    expect([status, body]).toEqual([200, expect.anything()])
    expect(jsonOf(route)?.parse(body)).toEqual(body)
  })
})

it('no route is hidden behind an earlier one', () => {
  const patternOf = ({ path }: Route) =>
    new RegExp(`^${path.replace('{wildcard}', '.+').replaceAll(/\{\w+\}/g, '[^/]+')}$`)
  const hidden = storageRoutes.filter((route, n) =>
    storageRoutes.slice(0, n).some((other) => other.method === route.method && patternOf(other).test(route.path)),
  )
  expect(hidden.map(({ id }) => id)).toEqual([])
})

describe.each(storageRoutes.filter(({ path }) => path.includes('{bucket')))('$method $path', ({ method, path }) => {
  it('refuses a bucket name that no bucket can have', async () => {
    const filled = path.replace(/\{bucket\w+\}/, 'a%23b').replace('{wildcard}', 'name')
    expect(codeOf(await service(`${method} ${filled}?token=none`))).toBe('InvalidBucketName')
  })
})

const withJsonBody = storageRoutes.filter(({ body }) => body && !isStreamed(body))
describe.each(withJsonBody)('$method $path', ({ method, path }) => {
  it('refuses a body of more than 1 MiB', async () => {
    const call = { body: { name: 'x'.repeat(1024 * 1024) } }
    expect(codeOf(await service(`${method} ${await fill(path, 'name')}`, call))).toBe('EntityTooLarge')
  })
})

describe('a bucket that is deleted after a URL was signed', () => {
  it('has no object and takes no upload', async () => {
    const gone = await newBucket(storage)
    await service(`POST /object/${gone}/name`, { body: 'text', headers: plain })
    const download = await service(`POST /object/sign/${gone}/name`, { body: { expiresIn: 60 } })
    const upload = await service(`POST /object/upload/sign/${gone}/other`)
    await service(`POST /bucket/${gone}/empty`)
    expect((await service(`DELETE /bucket/${gone}`)).status).toBe(200)
    expect(codeOf(await service(`GET ${download.body.signedURL}`))).toBe('NoSuchBucket')
    expect(codeOf(await service(`PUT ${upload.body.url}`, { body: 'text', headers: plain }))).toBe('NoSuchBucket')
    const copy = { bucketId: gone, sourceKey: 'name', destinationBucket: bucket, destinationKey: 'copy' }
    expect(codeOf(await service('POST /object/copy', { body: copy }))).toBe('NoSuchBucket')
    expect(codeOf(await service(`POST /object/sign/${gone}/name`, { body: { expiresIn: 60 } }))).toBe('NoSuchBucket')
  })
})

describe('the rules of a bucket and of headers', () => {
  const png = { 'content-type': 'image/png' }

  it('hold for replaced objects and for signed URLs', async () => {
    const name = await newObject()
    const sign = async () => (await service(`POST /object/upload/sign/${bucket}/${randomUUID()}`)).body.url
    for (const request of [`PUT /object/${bucket}/${name}`, `PUT ${await sign()}`]) {
      const errorWith = async (headers: Record<string, string>) =>
        (await service(request, { body: 'text', headers })).body.error
      expect(await errorWith(png)).toBe('invalid_mime_type')
      expect(await errorWith({ ...plain, 'cache-control': 'é' })).toBe('invalid_header_char')
      expect(await errorWith({ ...plain, 'x-robots-tag': 'anything' })).toBe('invalid_x_robots_tag')
    }
  })

  it('hold for copied and moved objects', async () => {
    const name = await newObject()
    const pictures = await newBucket(storage, { allowed_mime_types: ['image/*'] })
    const body = { bucketId: bucket, sourceKey: name, destinationBucket: pictures, destinationKey: 'copy' }
    expect(codeOf(await service('POST /object/copy', { body }))).toBe('InvalidMimeType')
    expect(codeOf(await service('POST /object/move', { body }))).toBe('InvalidMimeType')
    const metadata = { cacheControl: 'é', mimetype: 'text/plain' }
    const changed = { bucketId: bucket, sourceKey: name, destinationKey: 'copy', copyMetadata: false, metadata }
    expect((await service('POST /object/copy', { body: changed })).body.error).toBe('invalid_header_char')
  })
})

it('reports a version that the CLI ignores', async () => {
  expect(await service('GET /version')).toMatchObject({ status: 200, body: '0.0.0' })
})

it('information about a missing object of a public bucket is refused', async () => {
  expect(codeOf(await service(`GET /object/info/public/${bucket}/missing`))).toBe('NoSuchKey')
})

describe('resumable uploads', () => {
  const tus = { 'tus-resumable': '1.0.0' }
  const metadataOf = (bucketId: string, name: string) =>
    `bucketName ${btoa(bucketId)},objectName ${btoa(name)},contentType ${btoa('text/plain')}`
  const create = (bucketId: string, name: string, headers = {}, path = '/upload/resumable') =>
    service(`POST ${path}`, {
      headers: { ...tus, 'upload-length': '8', 'upload-metadata': metadataOf(bucketId, name), ...headers },
    })

  it('refuse a bucket name that no bucket can have', async () => {
    expect((await create('a#b', 'name')).status).toBe(400)
  })

  it('refuse a token that is wrong, or for another object', async () => {
    const sign = async (name: string) => (await service(`POST /object/upload/sign/${bucket}/${name}`)).body.token
    const [own, other] = [await sign('own'), await sign('other')]
    const signed = '/upload/resumable/sign'
    expect((await create(bucket, 'own', { 'x-signature': 'wrong' }, signed)).status).toBe(400)
    const created = await create(bucket, 'own', { 'x-signature': own }, signed)
    expect(created.status).toBe(201)
    const path = new URL(created.headers.get('location') ?? '').pathname.replace(/.*\/storage\/v1/, '')
    const patch = { 'content-type': 'application/offset+octet-stream', 'upload-offset': '0' }
    for (const token of ['wrong', other]) {
      const headers = { ...tus, 'x-signature': token }
      expect((await service(`HEAD ${path}`, { headers })).status).toBe(400)
      expect((await service(`PATCH ${path}`, { headers: { ...headers, ...patch }, body: 'text' })).status).toBe(400)
      expect((await service(`DELETE ${path}`, { headers })).status).toBe(400)
    }
  })

  it('refuse bytes for a bucket that is gone', async () => {
    const gone = await newBucket(storage)
    const created = await create(gone, 'name')
    const path = new URL(created.headers.get('location') ?? '').pathname.replace(/.*\/storage\/v1/, '')
    expect((await service(`DELETE /bucket/${gone}`)).status).toBe(200)
    const headers = { ...tus, 'content-type': 'application/offset+octet-stream', 'upload-offset': '0' }
    expect((await service(`PATCH ${path}`, { headers, body: '12345678' })).status).toBe(404)
  })
})

it('says in each reply of a deprecated route that it is deprecated', async () => {
  const name = await newObject()
  const deprecationOf = async (path: string) => (await service(`GET ${path}`)).headers.get('deprecation')
  expect(await deprecationOf(`/object/${bucket}/${name}`)).toBe('@1795219200')
  expect(await deprecationOf(`/object/${bucket}/missing`)).toBe('@1795219200')
  expect(await deprecationOf(`/object/authenticated/${bucket}/${name}`)).toBeNull()
  expect(await deprecationOf(`/object/public/${bucket}/${name}`)).toBeNull()
})
