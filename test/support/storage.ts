import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { StorageClient } from '@supabase/storage-js'
import { expect } from 'vitest'
import { as, baseUrl, newOrganization, type TestOrganization } from './api.ts'
import { newProject } from './projects.ts'

/** Makes a project with the keys of its roles, and its storage server as the holder of a key calls it. */
export async function newStorage(given?: Pick<TestOrganization, 'owner' | 'slug'>, base: string = baseUrl) {
  const organization = given ?? (await newOrganization())
  const ref = await newProject(organization)
  const reply = await organization.owner.get(`/v1/projects/${ref}/api-keys?reveal=true`)
  expect(reply.status).toBe(200)
  const keyOf = (name: string, type = 'legacy'): string =>
    reply.body.find((key: { name: string; type: string }) => key.name === name && key.type === type)?.api_key as string
  const url = new URL(`/p/${ref}/storage/v1`, base).href
  const keys = {
    anon: keyOf('anon'),
    service: keyOf('service_role'),
    publishable: keyOf('default', 'publishable'),
    secret: keyOf('default', 'secret'),
  }
  return { organization, ref, url, keys }
}
export type TestStorage = Awaited<ReturnType<typeof newStorage>>

export const clientOf = ({ url }: TestStorage, key: string) =>
  new StorageClient(url, { authorization: `Bearer ${key}`, apikey: key })

/** Returns the storage API over HTTP; its paths have no leading slash, as `bucket/photos`. */
export const apiOf = ({ url }: TestStorage, key?: string) => as(key, {}, `${url}/`)

export async function newBucket(storage: TestStorage, fields: Record<string, unknown> = {}): Promise<string> {
  const name = `bucket-${randomUUID()}`
  const reply = await apiOf(storage, storage.keys.service).post('bucket', { name, ...fields })
  expect([reply.status, reply.body]).toEqual([200, { name }])
  return name
}

/** Returns the body of an error. */
export const refusal = (statusCode: number, error: string, code: string, message: unknown = expect.any(String)) => ({
  statusCode: String(statusCode),
  error,
  code,
  message,
})
export const NO_BUCKET = refusal(404, 'Bucket not found', 'NoSuchBucket', 'Bucket not found')
export const NO_OBJECT = refusal(404, 'not_found', 'NoSuchKey', 'Object not found')
export const KEY_TAKEN = refusal(409, 'Duplicate', 'KeyAlreadyExists', 'The resource already exists')
export const TOO_LARGE = refusal(
  413,
  'Payload too large',
  'EntityTooLarge',
  'The object exceeded the maximum allowed size',
)
export const invalid = (message: string) => refusal(400, 'Error', 'InvalidRequest', message)

interface Wire {
  method?: string
  headers?: Record<string, string>
  /** Several chunks are sent with `transfer-encoding: chunked`, unless the headers have their length. */
  body?: string | Uint8Array | (string | Uint8Array)[]
  /** Sends no more than `body`, even if the headers announce more. */
  unfinished?: boolean
}

/** Makes one exchange on the wire, to which no client adds anything. */
export async function exchange(url: string, { method = 'GET', headers = {}, body, unfinished }: Wire = {}) {
  const outgoing = request(url, { method, headers, agent: false })
  for (const chunk of [body ?? []].flat()) outgoing.write(chunk)
  if (!unfinished) outgoing.end()
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage]
  const text = (await buffer(incoming)).toString()
  outgoing.destroy()
  return { status: incoming.statusCode, headers: incoming.headers, body: text }
}
