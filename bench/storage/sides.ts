import { randomUUID } from 'node:crypto'
import type { Statement } from '../../src/engine/engine.ts'
import type { Storage } from '../../src/services/storage/database.ts'
import { asReader, type Caller } from '../../src/services/storage/database.ts'
import { findObject } from '../../src/services/storage/read-object.ts'
import { assertRules } from '../../src/services/storage/statements/buckets.ts'
import { listObjects, listPage } from '../../src/services/storage/statements/lists.ts'
import type { Place } from '../../src/services/storage/statements/object-rows.ts'
import { asJson } from '../../src/services/storage/statements/values.ts'
import { authorizeUpload, write } from '../../src/services/storage/upload-object.ts'
import { SMALL_UPLOAD_BYTES_MAX } from '../../src/services/storage/upload-permission-cache.ts'
import { bearer, type Connection, get, type Reply, type Request, send } from '../client.ts'
import { inTurn } from '../seed.ts'
import { captureStatements } from './floor.ts'
import type { NextJob } from './interleaved.ts'
import type { Lane, StorageBench } from './lanes.ts'
import { BUCKETS, MILLION, nameOf, USER } from './project.ts'

/** The same operation through the storage server, and its floor, the minimal work. */
export type Sides = Record<'server' | 'floor', NextJob<Lane>>

const LISTED = 100
/** Number of objects that are replaced or read in turn. */
const OBJECTS = 64

const baseOf = ({ project }: StorageBench) => `/p/${project.ref}/storage/v1`
const json = (token: string) => ({ ...bearer(token), 'content-type': 'application/json' })

const callerOf = ({ token }: StorageBench, operation: string): Caller => ({
  role: 'authenticated',
  userId: USER,
  claims: { sub: USER, role: 'authenticated' },
  method: 'POST',
  path: '/object',
  token,
  headers: '{"host":"127.0.0.1"}',
  operation,
})

async function sendAndCheck(connection: Connection, request: Request, accepts = (_: Reply) => true): Promise<Reply> {
  const reply = await connection.send(request)
  if (reply.status !== 200 || !accepts(reply)) throw new Error(`answered ${reply.status}: ${reply.body.slice(0, 500)}`)
  return reply
}

const TYPE = 'image/jpeg'

export function uploads(
  bench: StorageBench,
  kind: 'new key' | 'upsert',
  body: Buffer,
): Sides & { bucketAlone: NextJob<Lane> } {
  const { token, bucket } = bench
  const upsert = kind === 'upsert'
  const existing = inTurn(Array.from({ length: 10 * OBJECTS }, (_, n) => `${body.length}/upsert-${n}`))
  const nextName = upsert ? existing : () => `${body.length}/${randomUUID()}`
  const headers = { ...bearer(token), 'content-type': TYPE, 'x-upsert': String(upsert) }
  const description = { contentType: TYPE, cacheControl: 'no-cache', userMetadata: null }
  const needsPermissionCheck = body.length > SMALL_UPLOAD_BYTES_MAX
  const rules = { id: BUCKETS.private, public: false, file_size_limit: null, allowed_mime_types: null }
  const serverStatements = needsPermissionCheck ? [] : [assertRules(rules)]
  return {
    server: requestJob(() => send('POST', `${baseOf(bench)}/object/${BUCKETS.private}/${nextName()}`, body, headers)),
    async floor() {
      const put = await bucket.put(randomUUID(), body, TYPE)
      const place = { bucketId: BUCKETS.private, name: `floor/${nextName()}` }
      const by = callerOf(bench, 'storage.object.upload')
      return async ({ bucket, storage }) => {
        const size = body.length
        if (needsPermissionCheck) await authorizeUpload(storage, by, place, { upsert, description, size })
        await sendAndCheck(bucket, put)
        const written = { ...description, version: randomUUID(), size, etag: '"of-the-bucket"' }
        await write(storage, place, written, { upsert, caller: by, ownerId: USER, serverStatements })
      }
    },
    async bucketAlone() {
      const put = await bucket.put(randomUUID(), body, TYPE)
      return async ({ bucket }) => void (await sendAndCheck(bucket, put))
    },
  }
}

export async function downloads(bench: StorageBench, body: Buffer): Promise<Record<string, Sides>> {
  const { token, bucket, lanes } = bench
  const [lane] = lanes
  if (!lane) throw new Error('no lane')
  const base = baseOf(bench)
  const keys = Array.from({ length: OBJECTS }, (_, n) => `${body.length}/read-${n}`)
  const accepts = ({ bodyBytes }: Reply) => bodyBytes === body.length
  const signed: string[] = []
  const direct: Request[] = []
  for (const key of keys) {
    for (const bucketId of [BUCKETS.private, BUCKETS.public]) {
      const headers = { ...bearer(token), 'content-type': TYPE }
      await sendAndCheck(lane.api, send('POST', `${base}/object/${bucketId}/${key}`, body, headers))
    }
    const sign = Buffer.from(JSON.stringify({ expiresIn: 3600 }))
    const path = `${base}/object/sign/${BUCKETS.private}/${key}`
    const { body: url } = await sendAndCheck(lane.api, send('POST', path, sign, json(token)))
    signed.push(`${base}${JSON.parse(url).signedURL}`)
    await sendAndCheck(lane.bucket, await bucket.put(key, body, TYPE))
    direct.push(await bucket.get(key))
  }

  const sidesOf = (requests: Request[]): Sides => {
    const [next, nextDirect] = [inTurn(requests), inTurn(direct)]
    return {
      server: requestJob(next, accepts),
      floor() {
        const request = nextDirect()
        return async ({ bucket }) => void (await sendAndCheck(bucket, request, accepts))
      },
    }
  }
  return {
    authenticated: sidesOf(
      keys.map((key) => get(`${base}/object/authenticated/${BUCKETS.private}/${key}`, bearer(token))),
    ),
    public: sidesOf(keys.map((key) => get(`${base}/object/public/${BUCKETS.public}/${key}`))),
    signed: sidesOf(signed.map((path) => get(path))),
  }
}

/** Distance between the names that are read in a row, among a million. */
const STRIDE = 7_919

/** Look-ups of an object's metadata. */
export function lookUps(bench: StorageBench): { info: Sides; sign: Sides } {
  const { token } = bench
  const base = baseOf(bench)
  let n = 0
  const nextName = () => nameOf((n++ * STRIDE) % MILLION)
  const found = (operation: string) => () => {
    const place: Place = { bucketId: BUCKETS.million, name: nextName() }
    const reader = { kind: 'caller', caller: callerOf(bench, operation) } as const
    return (storage: Storage) => findObject(storage, place, reader)
  }
  const body = Buffer.from(JSON.stringify({ expiresIn: 3600 }))
  const info = () => get(`${base}/object/info/${BUCKETS.million}/${nextName()}`, bearer(token))
  const sign = () => send('POST', `${base}/object/sign/${BUCKETS.million}/${nextName()}`, body, json(token))
  return {
    info: { server: requestJob(info), ...floorOf(bench, found('storage.object.info_authenticated')) },
    sign: { server: requestJob(sign), ...floorOf(bench, found('storage.object.sign')) },
  }
}

/** Lists the first hundred entries of a bucket: files, and a folder of ten after each ninety. */
export function listings(bench: StorageBench, bucketId: string): { list: Sides; 'list-v2': Sides } {
  const { token } = bench
  const base = baseOf(bench)
  const post = (path: string, body: unknown) => send('POST', path, Buffer.from(JSON.stringify(body)), json(token))
  const list = () => post(`${base}/object/list/${bucketId}`, { prefix: '', limit: LISTED })
  const page = () => post(`${base}/object/list-v2/${bucketId}`, { prefix: '', limit: LISTED, with_delimiter: true })
  const order = { bucketId, prefix: '', column: 'name', order: 'asc' } as const
  const listed = (statement: Statement) => () => async (storage: Storage) => {
    const [[found] = []] = await asReader(storage, callerOf(bench, 'storage.object.list'), [statement])
    if (!found) throw new Error('nothing was listed')
  }
  const countOf = ({ folders, objects }: { folders: unknown[]; objects: unknown[] }) => folders.length + objects.length
  return {
    list: {
      server: requestJob(list, ({ body }) => JSON.parse(body).length === LISTED),
      ...floorOf(bench, listed(asJson(listObjects({ ...order, search: '', limit: LISTED, offset: 0 })))),
    },
    'list-v2': {
      server: requestJob(page, ({ body }) => countOf(JSON.parse(body)) === LISTED),
      ...floorOf(bench, listed(asJson(listPage({ ...order, delimited: true, limit: LISTED + 1 })))),
    },
  }
}

/** The floor: the same statements directly to Postgres, and from the Worker with nothing else around them. */
function floorOf({ project }: StorageBench, next: () => (storage: Storage) => Promise<unknown>) {
  return {
    floor() {
      const work = next()
      return async ({ storage }: Lane) => void (await work(storage))
    },
    async bare() {
      const { ref, runnerPassword } = project
      const batch = { ref, runnerPassword, statements: await captureStatements(next(), project) }
      const headers = { 'content-type': 'application/json' }
      const request = send('POST', '/bench/batch', Buffer.from(JSON.stringify(batch)), headers)
      return async ({ api }: Lane) => void (await sendAndCheck(api, request))
    },
  }
}

const requestJob =
  (make: () => Request, accepts?: (reply: Reply) => boolean): NextJob<Lane> =>
  () => {
    const request = make()
    return async ({ api }) => void (await sendAndCheck(api, request, accepts))
  }
