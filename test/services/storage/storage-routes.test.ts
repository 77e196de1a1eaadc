import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import type * as z from 'zod'
import { isJsonText, isResponses, type Route } from '../../../src/services/storage/route.ts'
import { storageRoutes } from '../../../src/services/storage/routes.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { type Call, calling } from '../../support/storage-http.ts'

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
