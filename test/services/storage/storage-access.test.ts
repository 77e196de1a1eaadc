import { createHmac, randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createStorageApp } from '../../../src/services/storage/app.ts'
import { instanceState } from '../../instances.ts'
import { newOrganization, type TestOrganization, workerLogs } from '../../support/api.ts'
import { runSql, untilGone, untilStatus } from '../../support/projects.ts'
import { NO_BUCKET, newBucket as newEmptyBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import {
  type Call,
  calling,
  codeOf,
  expectNoStrayBytes,
  openSql,
  type Sql,
  signerOf,
} from '../../support/storage-http.ts'

let organization: TestOrganization
let storage: TestStorage
let signer: Awaited<ReturnType<typeof signerOf>>
let sql: Sql
let service: ReturnType<typeof calling>
const closing: (() => Promise<void>)[] = []
beforeAll(async () => {
  organization = await newOrganization()
  storage = await newStorage(organization)
  signer = await signerOf(storage)
  service = calling(storage, storage.keys.service)
  sql = await database(storage)
})
afterAll(async () => {
  for (const close of closing) await close()
})

async function database(of: TestStorage): Promise<Sql> {
  const opened = await openSql(of)
  closing.push(opened.close)
  return opened.sql
}

/** Makes a bucket with an object `dir/a.txt` in it. */
async function newBucket(fields: { public?: boolean } = {}): Promise<string> {
  const name = await newEmptyBucket(storage, fields)
  expect(await service(`POST /object/${name}/dir/a.txt`, { body: 'kept' })).toMatchObject({ status: 200 })
  return name
}

const A = 'dir/a.txt'
type Attempt = [request: string, call?: Call]
interface Tried {
  attempt: Attempt
  /** The reply to an anonymous caller without a policy. */
  asAnon: unknown
  /** Whether an invalid token counts as none. */
  isOptional?: true
  needsNone?: true
  /** Whether an error has its status and a plain text. */
  isText?: true
}

const resumable = (b: string): Tried[] => {
  const metadata = { bucketName: b, objectName: 'new.txt' }
  const headers = {
    'tus-resumable': '1.0.0',
    'upload-length': '1',
    'upload-offset': '0',
    'upload-metadata': Object.entries(metadata)
      .map(([name, text]) => `${name} ${btoa(text)}`)
      .join(),
    'content-type': 'application/offset+octet-stream',
  }
  const override = { headers: { ...headers, 'x-http-method-override': 'PATCH' }, body: 'x' }
  const one = `/upload/resumable/${crypto.randomUUID()}`
  const signed = one.replace('resumable/', 'resumable/sign/')
  return [
    { attempt: ['POST /upload/resumable', { headers, body: 'x' }], asAnon: 403 },
    { attempt: [`GET ${one}`, { headers }], asAnon: 404, needsNone: true },
    { attempt: [`PATCH ${one}`, { headers, body: 'x' }], asAnon: 404 },
    { attempt: [`POST ${one}`, override], asAnon: 404 },
    { attempt: [`DELETE ${one}`, { headers }], asAnon: 404 },
    { attempt: ['POST /upload/resumable/sign', { headers, body: 'x' }], asAnon: 400, needsNone: true },
    { attempt: [`GET ${signed}`, { headers }], asAnon: 404, needsNone: true },
    { attempt: [`PATCH ${signed}`, { headers, body: 'x' }], asAnon: 404, needsNone: true },
    { attempt: [`POST ${signed}`, override], asAnon: 404, needsNone: true },
    { attempt: [`DELETE ${signed}`, { headers }], asAnon: 404, needsNone: true },
  ]
}

/** Returns every route, on a private bucket. */
const routes = (b: string): Tried[] => {
  const moving = { body: { bucketId: b, sourceKey: A, destinationKey: 'b.txt' } }
  return [
    { attempt: ['GET /status'], asAnon: 200, needsNone: true },
    { attempt: ['GET /version'], asAnon: 200, needsNone: true },
    { attempt: ['GET /health'], asAnon: 200 },
    { attempt: ['POST /bucket', { body: { name: 'new' } }], asAnon: 'AccessDenied' },
    { attempt: ['GET /bucket'], asAnon: [] },
    { attempt: [`GET /bucket/${b}`], asAnon: 'NoSuchBucket' },
    { attempt: [`PUT /bucket/${b}`, { body: { public: true } }], asAnon: 'NoSuchBucket' },
    { attempt: [`DELETE /bucket/${b}`], asAnon: 'NoSuchBucket' },
    { attempt: [`POST /bucket/${b}/empty`], asAnon: 'AccessDenied' },
    { attempt: [`POST /object/${b}/new.txt`, { body: 'x' }], asAnon: 'AccessDenied' },
    { attempt: [`POST /object/${b}/${A}`, { body: 'x', headers: { 'x-upsert': 'true' } }], asAnon: 'AccessDenied' },
    { attempt: [`PUT /object/${b}/${A}`, { body: 'x' }], asAnon: 'AccessDenied' },
    { attempt: [`GET /object/${b}/${A}`], asAnon: 'NoSuchKey', isOptional: true },
    { attempt: [`GET /object/info/${b}/${A}`], asAnon: 'NoSuchKey', isOptional: true },
    { attempt: [`GET /object/authenticated/${b}/${A}`], asAnon: 'NoSuchKey' },
    { attempt: [`GET /object/info/authenticated/${b}/${A}`], asAnon: 'NoSuchKey' },
    { attempt: [`GET /object/public/${b}/${A}`], asAnon: 'NoSuchBucket', needsNone: true },
    { attempt: [`GET /object/info/public/${b}/${A}`], asAnon: 'NoSuchBucket', needsNone: true },
    { attempt: [`DELETE /object/${b}/${A}`], asAnon: 'NoSuchKey' },
    { attempt: [`DELETE /object/${b}`, { body: { prefixes: [A] } }], asAnon: [] },
    { attempt: ['POST /object/copy', moving], asAnon: 'NoSuchKey' },
    { attempt: ['POST /object/move', moving], asAnon: 'NoSuchKey' },
    { attempt: [`POST /object/list/${b}`, { body: { prefix: '' } }], asAnon: [] },
    { attempt: [`POST /object/list-v2/${b}`, { body: {} }], asAnon: { hasNext: false, folders: [], objects: [] } },
    { attempt: [`POST /object/sign/${b}/${A}`, { body: { expiresIn: 60 } }], asAnon: 'NoSuchKey' },
    {
      attempt: [`POST /object/sign/${b}`, { body: { expiresIn: 60, paths: [A] } }],
      asAnon: [{ error: expect.stringContaining('not exist'), path: A, signedURL: null }],
    },
    { attempt: [`POST /object/upload/sign/${b}/new.txt`], asAnon: 'AccessDenied' },
    { attempt: [`GET /object/sign/${b}/${A}`], asAnon: 'InvalidRequest', needsNone: true },
    { attempt: [`PUT /object/upload/sign/${b}/new.txt`, { body: 'x' }], asAnon: 'InvalidRequest', needsNone: true },
    ...resumable(b).map((tried) => ({ ...tried, isText: true }) as const),
  ]
}

const rowsOf = (bucket: string) => sql('select name, version from storage.objects where bucket_id = $1', [bucket])

describe('every route', () => {
  it('is tested here', () => {
    const patterns = createStorageApp()
      .routes.filter(({ method }) => method !== 'ALL')
      .map(({ method, path }) => ({
        route: `${method} ${path}`,
        matches: new RegExp(`^${method} ${path.replace(/:\w+/g, '[^/]+').replace('*', '.+')}$`),
      }))
    const tried = routes('b').map(({ attempt: [request] }) => request)
    expect(patterns.length).toBeGreaterThan(20)
    const untried = patterns.filter(({ matches }) => !tried.some((request) => matches.test(request)))
    expect(untried.map(({ route }) => route)).toEqual([])
  })

  it('gives an anonymous caller nothing without a policy, and changes nothing', async () => {
    const bucket = await newBucket()
    const before = await rowsOf(bucket)
    const anon = calling(storage, storage.keys.anon)
    for (const { attempt, asAnon } of routes(bucket)) {
      const reply = await anon(...attempt)
      expect({ attempt, got: typeof asAnon === 'object' ? reply.body : codeOf(reply) }).toEqual({
        attempt,
        got: asAnon,
      })
    }
    expect(await rowsOf(bucket)).toEqual(before)
    expect(await sql(`select from storage.buckets where id = 'new'`)).toEqual([])
    await expectNoStrayBytes(storage, sql)
  })

  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const claims = { role: 'service_role', exp: Math.floor(Date.now() / 1000) + 600 }
  const byHand = (header: unknown, secret: string) => {
    const text = `${part(header)}.${part(claims)}`
    return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`
  }
  it.each<[string, () => Promise<string | undefined> | string | undefined, string]>([
    ['no token', () => undefined, 'authorization'],
    ['an expired one', () => signer.sign(claims, { at: new Date(Date.now() - 7200e3) }), '"exp"'],
    ['one of later', () => signer.sign({ ...claims, nbf: claims.exp }), '"nbf"'],
    [
      'one whose role was changed',
      () => storage.keys.anon.replace(/\.[^.]+\./, `.${part(claims)}.`),
      'signature verification failed',
    ],
    ['one without an algorithm', () => `${part({ alg: 'none' })}.${part(claims)}.`, '"alg"'],
    ['one of no algorithm that is signed', () => byHand({ alg: 'none' }, signer.jwtSecret), '"alg"'],
    ['one signed with no secret', () => byHand({ alg: 'HS256' }, 'secret'), 'signature verification failed'],
    ["another project's", async () => (await newStorage(organization)).keys.service, 'signature verification failed'],
    ['one of the role that is logged in', () => signer.sign({ role: 'supabase_storage_admin' }), '"role"'],
    ['one of no role at all', () => signer.sign({ role: 'none' }), '"role"'],
    ['one of the owner', () => signer.sign({ role: 'postgres' }), '"role"'],
    ['one of the superuser', () => signer.sign({ role: 'supabase_admin' }), '"role"'],
    ['nonsense', () => 'nonsense', 'Invalid Compact JWS'],
  ])('refuses %s', async (name, token, message) => {
    const bucket = await newBucket()
    const before = await rowsOf(bucket)
    const caller = calling(storage, await token())
    for (const { attempt, isOptional, needsNone, asAnon, isText } of routes(bucket)) {
      const reply = await caller(...attempt)
      const [code, status] = name === 'no token' ? ['InvalidRequest', 400] : ['AccessDenied', 403]
      const refused = isText ? status : code
      const expected = needsNone ? asAnon : isOptional ? 'NoSuchBucket' : refused
      expect({ attempt, got: codeOf(reply) }).toEqual({ attempt, got: expected })
      if (expected === refused && !needsNone) expect(isText ? reply.body : reply.body.message).toContain(message)
    }
    expect(await rowsOf(bucket)).toEqual(before)
  })
})

describe('the token of a URL', () => {
  it('is valid for one object, one purpose and its time', async () => {
    const bucket = await newBucket()
    await service(`POST /object/${bucket}/other.txt`, { body: 'other' })
    const signed = await service(`POST /object/sign/${bucket}/${A}`, { body: { expiresIn: 60 } })
    const download = signed.body.signedURL.split('token=')[1]
    const upload = (await service(`POST /object/upload/sign/${bucket}/new.txt`)).body.token
    const anyone = calling(storage)
    const refusals: [string, string, unknown][] = [
      ['GET', `/object/sign/${bucket}/${A}?token=${upload}`, 'InvalidSignature'],
      ['GET', `/object/sign/${bucket}/new.txt?token=${upload}`, 'InvalidSignature'],
      ['GET', `/object/sign/${bucket}/other.txt?token=${download}`, 'InvalidSignature'],
      ['GET', `/object/sign/${bucket}/dir/a.txt/?token=${download}`, 'InvalidSignature'],
      ['GET', `/object/sign/${bucket}/dir/../dir/b.txt?token=${download}`, 'InvalidSignature'],
      ['GET', `/object/sign/${bucket}/${A}?token=${storage.keys.service}`, 'InvalidSignature'],
      ['GET', `/object/sign/${bucket}/${A}?token=${download}x`, 'InvalidJWT'],
      ['PUT', `/object/upload/sign/${bucket}/${A}?token=${download}`, 'InvalidSignature'],
      ['PUT', `/object/upload/sign/${bucket}/${A}?token=${upload}`, 'InvalidSignature'],
      ['PUT', `/object/upload/sign/${bucket}/new.txt?token=${download}`, 'InvalidSignature'],
      ['PUT', `/object/upload/sign/other/new.txt?token=${upload}`, 'InvalidSignature'],
      ['PUT', `/object/upload/sign/${bucket}/new.txt?token=${storage.keys.service}`, 'InvalidSignature'],
    ]
    for (const [method, path, code] of refusals) {
      const body = method === 'PUT' ? 'x' : undefined
      expect({ path, got: codeOf(await anyone(`${method} ${path}`, { body })) }).toEqual({ path, got: code })
    }
    expect((await anyone(`GET /object/sign/${bucket}/${A}?token=${download}`)).body).toBe('kept')
    const later = { headers: { 'x-test-clock': String(Date.now() + 61_000) } }
    expect(codeOf(await anyone(`GET /object/sign/${bucket}/${A}?token=${download}`, later))).toBe('InvalidJWT')
    expect(codeOf(await anyone(`PUT /object/upload/sign/${bucket}/new.txt?token=${upload}`, { body: 'x' }))).toBe(200)
    // It is not valid as a credential.
    expect(codeOf(await calling(storage, download)(`GET /object/authenticated/${bucket}/${A}`))).toBe('AccessDenied')
  })

  it('is valid for the version that it was signed for, if one was named', async () => {
    const bucket = await newBucket()
    const versionOf = async () => (await service(`GET /object/info/${bucket}/${A}`)).body.version
    const sign = async (fields = {}) =>
      (await service(`POST /object/sign/${bucket}/${A}`, { body: { expiresIn: 60, ...fields } })).body.signedURL
    const first = await versionOf()
    const [any, one] = [await sign(), await sign({ versionId: first })]
    expect((await service(`GET ${one}`)).body).toBe('kept')
    expect(codeOf(await service(`PUT /object/${bucket}/${A}`, { body: 'new' }))).toBe(200)
    expect((await service(`GET ${any}`)).body).toBe('new')
    for (const query of ['', `&versionId=${first}`, `&versionId=${await versionOf()}`])
      expect([query, codeOf(await service(`GET ${one}${query}`))]).toEqual([query, 'NoSuchKey'])
  })

  it('needs no end if the project signed it itself', async () => {
    const bucket = await newBucket()
    const endless = async (claims: Record<string, unknown>) => {
      const head = Buffer.from('{"alg":"HS256"}').toString('base64url')
      const text = `${head}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`
      return `${text}.${createHmac('sha256', signer.jwtSecret).update(text).digest('base64url')}`
    }
    const anyone = calling(storage)
    const [url, jti] = [`${bucket}/${A}`, randomUUID()]
    const read = await anyone(`GET /object/sign/${url}?token=${await endless({ url, scope: 'download' })}`)
    expect([read.status, read.headers.get('expires')]).toEqual([200, expect.stringContaining('9999')])
    for (const exp of [undefined, 1e17]) {
      const token = await endless({ url, scope: 'upload', upsert: true, jti: exp ? randomUUID() : jti, exp })
      expect((await anyone(`PUT /object/upload/sign/${url}?token=${token}`, { body: 'x' })).status).not.toBe(500)
    }
  })

  it('is valid for one upload with a jti, and without one until its end, if the project signed it itself', async () => {
    const url = `${await newBucket()}/new.txt`
    const put = async (claims: Record<string, unknown>, body: string, headers = {}) => {
      const token = await signer.sign({ url, scope: 'upload', ...claims }, { seconds: 60, at })
      return codeOf(await calling(storage)(`PUT /object/upload/sign/${url}?token=${token}`, { body, headers }))
    }
    const at = new Date()
    const once = { upsert: true, jti: randomUUID() }
    expect([await put(once, 'a'), await put(once, 'b')]).toEqual([200, 'InvalidSignature'])
    const often = { upsert: true }
    expect([await put(often, 'c'), await put(often, 'd')]).toEqual([200, 200])
    expect(await put(often, 'e', { 'x-test-clock': String(at.getTime() + 61_000) })).toBe('InvalidJWT')
    expect(await put({ upsert: false }, 'f')).toBe('KeyAlreadyExists')
    expect((await calling(storage, storage.keys.service)(`GET /object/authenticated/${url}`)).body).toBe('d')
  })
})

describe('policies decide', () => {
  const command = (bucket: string, name: string) =>
    `create policy "${bucket} ${name}" on storage.objects for ${name} to authenticated ${
      name === 'insert' ? 'with check' : 'using'
    } (bucket_id = '${bucket}')`

  const operations: Record<string, { needs: Record<string, unknown>; attempt: (b: string) => Attempt }> = {
    read: { needs: { select: 'NoSuchKey' }, attempt: (b) => [`GET /object/authenticated/${b}/${A}`] },
    info: { needs: { select: 'NoSuchKey' }, attempt: (b) => [`GET /object/info/${b}/${A}`] },
    sign: {
      needs: { select: 'NoSuchKey' },
      attempt: (b) => [`POST /object/sign/${b}/${A}`, { body: { expiresIn: 9 } }],
    },
    list: { needs: { select: '[]' }, attempt: (b) => [`POST /object/list/${b}`, { body: { prefix: '' } }] },
    'list-v2': { needs: { select: '[]' }, attempt: (b) => [`POST /object/list-v2/${b}`, { body: {} }] },
    upload: { needs: { insert: 'AccessDenied' }, attempt: (b) => [`POST /object/${b}/new.txt`, { body: 'x' }] },
    'signed upload': { needs: { insert: 'AccessDenied' }, attempt: (b) => [`POST /object/upload/sign/${b}/new.txt`] },
    upsert: {
      needs: { insert: 'AccessDenied', select: 'AccessDenied', update: 'AccessDenied' },
      attempt: (b) => [`PUT /object/${b}/${A}`, { body: 'replaced' }],
    },
    move: {
      needs: { select: 'NoSuchKey', update: 'NoSuchKey' },
      attempt: (b) => ['POST /object/move', { body: { bucketId: b, sourceKey: A, destinationKey: 'b.txt' } }],
    },
    copy: {
      needs: { select: 'NoSuchKey', insert: 'AccessDenied' },
      attempt: (b) => ['POST /object/copy', { body: { bucketId: b, sourceKey: A, destinationKey: 'b.txt' } }],
    },
    remove: {
      needs: { select: 'NoSuchKey', delete: 'AccessDenied' },
      attempt: (b) => [`DELETE /object/${b}/${A}`],
    },
    'remove many': {
      needs: { select: '[]', delete: '[]' },
      attempt: (b) => [`DELETE /object/${b}`, { body: { prefixes: [A] } }],
    },
  }
  it.each<[string, (b: string) => Attempt]>([
    ['object.upload', (b) => [`POST /object/${b}/new.txt`, { body: 'x', headers: { 'x-upsert': 'true' } }]],
    ['object.upload_update', (b) => [`PUT /object/${b}/new.txt`, { body: 'x' }]],
    ['object.sign_upload_url', (b) => [`POST /object/upload/sign/${b}/new.txt`]],
  ])('by the name of the operation: %s', async (operation, attempt) => {
    const bucket = await newBucket()
    const user = calling(storage, await signer.user(randomUUID()))
    const allow = (name: string) =>
      sql(`create policy "${bucket}" on storage.objects to authenticated using (bucket_id = '${bucket}')
        with check (bucket_id = '${bucket}' and storage.allow_only_operation('${name}'))`)
    await allow('object.copy')
    expect(codeOf(await user(...attempt(bucket)))).toBe('AccessDenied')
    await sql(`drop policy "${bucket}" on storage.objects`)
    await allow(operation)
    expect(codeOf(await user(...attempt(bucket)))).toBe(200)
  })

  const isEmpty = (body: unknown) => !JSON.stringify(body).includes('"id"')

  it.each(Object.entries(operations))('on %s, each right by itself', async (_, { needs, attempt }) => {
    const user = calling(storage, await signer.user(randomUUID()))
    const other = calling(storage, storage.keys.anon)
    for (const missing of [...Object.keys(needs), undefined]) {
      const bucket = await newBucket()
      const given = Object.keys(needs).filter((name) => name !== missing)
      for (const name of given) await sql(command(bucket, name))
      const before = await rowsOf(bucket)
      const reply = await user(...attempt(bucket))
      const expected = missing === undefined ? 200 : needs[missing]
      const got = codeOf(reply)
      expect({ missing, got }).toEqual({ missing, got: expected === '[]' ? 200 : expected })
      if (missing !== undefined) expect(await rowsOf(bucket)).toEqual(before)
      if (Object.values(needs).includes('[]')) expect(isEmpty(reply.body)).toBe(missing !== undefined)
      if (missing === undefined)
        expect([200, 'NoSuchKey', 'AccessDenied']).toContain(codeOf(await other(...attempt(bucket))))
    }
  })

  it('by a role of the project that is granted to authenticator, and by no other', async () => {
    const bucket = await newBucket()
    const [granted, alone, login] = ['manager', 'intern', 'robot'].map((name) => `${name}_${randomUUID()}`)
    const setUp = await runSql(
      organization.owner,
      storage.ref,
      `create role "${granted}"; create role "${alone}"; create role "${login}" login;
       grant "${granted}", "${login}" to authenticator;
       grant usage on schema storage to "${granted}";
       grant select, insert on storage.objects to "${granted}";
       create policy "${granted}" on storage.objects to "${granted}" using (bucket_id = '${bucket}')
         with check (bucket_id = '${bucket}' and auth.role() = '${granted}')`,
    )
    expect(setUp).toMatchObject({ status: 201 })
    const asRole = async (role: unknown) => calling(storage, await signer.sign({ role }))
    const manager = await asRole(granted)
    expect(await manager(`POST /object/${bucket}/new`, { body: 'x' })).toMatchObject({ status: 200 })
    expect(await manager(`GET /object/${bucket}/new`)).toMatchObject({ status: 200, body: 'x' })
    expect(codeOf(await manager(`POST /object/${await newBucket()}/new`, { body: 'x' }))).toBe('AccessDenied')
    expect(codeOf(await manager(`DELETE /object/${bucket}/new`))).toBe('AccessDenied')
    const open = await newBucket({ public: true })
    const others = [alone, login, 'nobody', '', 'authenticator', 'NONE', 'pg_use_reserved_connections', 7]
    for (const role of others) {
      const reply = await (await asRole(role))(`POST /object/${bucket}/other`, { body: 'x' })
      expect([role, reply.body]).toMatchObject([
        role,
        { code: 'AccessDenied', message: expect.stringContaining('"role" claim') },
      ])
      expect(await (await asRole(role))(`GET /object/${open}/${A}`)).toMatchObject({ status: 200, body: 'kept' })
    }
  })

  it.each<[string, (face: string) => Promise<unknown>]>([
    ['an upsert', (face) => service(`POST /object/${face}`, { body: 'new', headers: { 'x-upsert': 'true' } })],
    ['a replacement', (face) => service(`PUT /object/${face}`, { body: 'new' })],
    ['a copy onto it', (face) => copyOnto(face)],
    ['a signed upload', (face) => uploadSigned(face)],
    ['a resumable upload', (face) => uploadResumable(face)],
  ])('a caller without a user id does not change the owner of an object: %s', async (_, replace) => {
    const bucket = await newBucket()
    const ada = randomUUID()
    await sql(`create policy "own of ${bucket}" on storage.objects to authenticated
      using (bucket_id = '${bucket}' and owner_id = auth.uid()::text)`)
    const asAda = calling(storage, await signer.user(ada))
    const face = `${bucket}/face.png`
    expect(await asAda(`POST /object/${face}`, { body: 'old' })).toMatchObject({ status: 200 })
    expect(await replace(face)).toMatchObject({ status: expect.toSatisfy((status) => status < 300) })
    const owners = 'select owner, owner_id from storage.objects where bucket_id = $1 and name = $2'
    expect(await sql(owners, [bucket, 'face.png'])).toEqual([{ owner: ada, owner_id: ada }])
    expect(await asAda(`GET /object/${face}`)).toMatchObject({ status: 200 })
    const bob = await signer.user('not-a-uuid')
    await sql(`drop policy "own of ${bucket}" on storage.objects;
      create policy "any of ${bucket}" on storage.objects to authenticated using (bucket_id = '${bucket}')`)
    expect(await calling(storage, bob)(`PUT /object/${face}`, { body: 'newer' })).toMatchObject({ status: 200 })
    expect(await sql(owners, [bucket, 'face.png'])).toEqual([{ owner: null, owner_id: 'not-a-uuid' }])
  })

  function copyOnto(face: string) {
    const [bucketId = '', destinationKey] = face.split('/')
    const headers = { 'x-upsert': 'true' }
    return service('POST /object/copy', { body: { bucketId, sourceKey: A, destinationKey }, headers })
  }

  async function uploadSigned(face: string) {
    const { body } = await service(`POST /object/upload/sign/${face}`, { headers: { 'x-upsert': 'true' } })
    return calling(storage)(`PUT ${body.url}`, { body: 'new' })
  }

  function uploadResumable(face: string) {
    const [bucketName = '', objectName = ''] = face.split('/')
    const metadata = `bucketName ${btoa(bucketName)},objectName ${btoa(objectName)}`
    const headers = {
      ...{ 'tus-resumable': '1.0.0', 'upload-length': '3', 'upload-metadata': metadata, 'x-upsert': 'true' },
      'content-type': 'application/offset+octet-stream',
    }
    return service('POST /upload/resumable', { body: 'new', headers })
  }

  it('by owner, folder, and the metadata of the object', async () => {
    const bucket = await newBucket()
    const [ada, bob] = [randomUUID(), randomUUID()]
    const own = `bucket_id = '${bucket}' and owner_id = auth.uid()::text`
    const inOwnFolder = `bucket_id = '${bucket}' and (storage.foldername(name))[1] = auth.uid()::text`
    await sql(`
      create policy owned_select on storage.objects for select to authenticated using (${own});
      create policy owned_insert on storage.objects for insert to authenticated
        with check (${inOwnFolder} and metadata ->> 'mimetype' = 'image/png' and coalesce(user_metadata ->> 'kind', '') <> 'bad');
      create policy owned_update on storage.objects for update to authenticated using (${own}) with check (${inOwnFolder});
      create policy owned_delete on storage.objects for delete to authenticated using (${own})`)
    const [asAda, asBob] = [calling(storage, await signer.user(ada)), calling(storage, await signer.user(bob))]
    const png = { body: 'png', headers: { 'content-type': 'image/png' } }
    const bad = Buffer.from('{"kind":"bad"}').toString('base64')
    const face = `${bucket}/${ada}/face.png`
    const steps: [typeof asAda, string, Call | undefined, unknown][] = [
      [asAda, `POST /object/${face}`, png, 200],
      [asAda, `POST /object/${bucket}/${bob}/face.png`, png, 'AccessDenied'],
      [asAda, `POST /object/${bucket}/face.png`, png, 'AccessDenied'],
      [asAda, `POST /object/${bucket}/${ada}/a.txt`, { body: 'x' }, 'AccessDenied'],
      [
        asAda,
        `POST /object/${bucket}/${ada}/b.png`,
        { ...png, headers: { ...png.headers, 'x-metadata': bad } },
        'AccessDenied',
      ],
      [asBob, `GET /object/${face}`, undefined, 'NoSuchKey'],
      [asBob, `PUT /object/${face}`, png, 'AccessDenied'],
      [asBob, `DELETE /object/${face}`, undefined, 'NoSuchKey'],
      [asAda, `PUT /object/${face}`, png, 200],
      [
        asAda,
        'POST /object/move',
        { body: { bucketId: bucket, sourceKey: `${ada}/face.png`, destinationKey: `${bob}/face.png` } },
        'AccessDenied',
      ],
      [
        asAda,
        'POST /object/copy',
        { body: { bucketId: bucket, sourceKey: `${ada}/face.png`, destinationKey: `${bob}/face.png` } },
        'AccessDenied',
      ],
      [asAda, `GET /object/${face}`, undefined, 200],
      [asAda, `DELETE /object/${face}`, undefined, 200],
    ]
    for (const [caller, request, call, code] of steps) {
      expect({ request, got: codeOf(await caller(request, call)) }).toEqual({ request, got: code })
    }
    await expectNoStrayBytes(storage, sql)
  })

  it('finally at the write: an upload that passed the first check and was refused there leaves no bytes', async () => {
    const bucket = await newBucket()
    await sql(`create policy "${bucket} late" on storage.objects for all to authenticated
      using (bucket_id = '${bucket}') with check (bucket_id = '${bucket}' and metadata ->> 'eTag' is null)`)
    const user = calling(storage, await signer.user(randomUUID()))
    const attempts: Attempt[] = [
      [`POST /object/${bucket}/late.txt`, { body: 'late' }],
      [`PUT /object/${bucket}/${A}`, { body: 'late' }],
      ['POST /object/copy', { body: { bucketId: bucket, sourceKey: A, destinationKey: 'b.txt' } }],
    ]
    const before = await rowsOf(bucket)
    for (const attempt of attempts) expect(codeOf(await user(...attempt))).toBe('AccessDenied')
    expect(await rowsOf(bucket)).toEqual(before)
    await expectNoStrayBytes(storage, sql)
  })

  it('for one request: nothing of it reaches the next one on the same connection', async () => {
    const [poison, probe, open] = [await newBucket(), await newBucket(), await newBucket({ public: true })]
    await sql(`
      create table states (role text, claims text, sub text, operation text, path text, temporary boolean, locked boolean);
      create schema evil;
      create function poison() returns boolean language plpgsql as $$ begin
        perform set_config('request.jwt.claims', '{"role":"service_role","sub":"victim"}', false),
          set_config('request.jwt.claim.sub', 'victim', false), set_config('storage.operation', 'leaked', false),
          set_config('search_path', 'evil', false), pg_advisory_lock(4711);
        perform set_config('role', 'service_role', false);
        return true; end $$;
      create function furnish() returns boolean language plpgsql security definer as $$ begin
        create temporary table if not exists objects (name text) on commit preserve rows;
        return true; end $$;
      create function note() returns boolean language plpgsql security definer as $$ begin
        insert into public.states values (current_setting('role'), current_setting('request.jwt.claims', true), auth.uid()::text,
          storage.operation(), current_setting('search_path'), to_regclass('pg_temp.objects') is not null,
          exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()));
        return true; end $$;
      create policy "${poison} poison" on storage.objects for select using (bucket_id = '${poison}' and public.furnish() and public.poison());
      create policy "${probe} probe" on storage.objects for select to anon using (bucket_id = '${probe}' and public.note())`)
    const user = calling(storage, await signer.user(randomUUID()))
    const anon = calling(storage, storage.keys.anon)
    const anyone = calling(storage)
    for (let round = 0; round < 4; round++) {
      const poisoned = await Promise.all(Array.from({ length: 8 }, () => user(`GET /object/info/${poison}/${A}`)))
      expect(poisoned.map(codeOf)).not.toContain('InternalError')
      const replies = await Promise.all(
        Array.from({ length: 8 }, (_, n) =>
          n % 2 ? anon(`GET /object/info/${probe}/${A}`) : anyone(`GET /object/public/${open}/${A}`),
        ),
      )
      expect(replies.map(codeOf)).toEqual(replies.map(() => 200))
    }
    const states = await sql('select distinct role, claims, sub, operation, path, temporary, locked from states')
    expect(states).toEqual([
      {
        role: 'anon',
        claims: expect.stringContaining('"role":"anon"'),
        sub: null,
        operation: 'storage.object.info_authenticated',
        path: expect.not.stringContaining('evil'),
        temporary: false,
        locked: false,
      },
    ])
  })

  it.each([
    ["raise exception 'no more than ten'", 'DatabaseError'],
    ["raise sqlstate '42501' using message = 'not today'", 'AccessDenied'],
    ["raise sqlstate '28000'", 'DatabaseError'],
    ['perform 1 / 0', 'DatabaseError'],
    ["perform 'x'::int", 'InvalidParameter'],
    ['perform * from nowhere', 'DatabaseSchemaMismatch'],
  ])('also by an error: %s', async (statement, code) => {
    const bucket = await newBucket()
    const name = `fail_${randomUUID().replaceAll('-', '')}`
    await sql(`create function ${name}() returns boolean language plpgsql as $$ begin ${statement}; return true; end $$;
      create policy "${name}" on storage.objects for insert to authenticated with check (bucket_id = '${bucket}' and ${name}())`)
    const user = calling(storage, await signer.user(randomUUID()))
    expect(codeOf(await user(`POST /object/${bucket}/new.txt`, { body: 'x' }))).toBe(code)
    expect(codeOf(await service(`POST /object/${bucket}/new.txt`, { body: 'x' }))).toBe(200)
    await sql(`drop policy "${name}" on storage.objects`)
  })

  it("with a text that names nothing of the database, except the owner's own text", async () => {
    const bucket = await newBucket()
    const user = calling(storage, await signer.user(randomUUID()))
    const told = async (check: string) => {
      await sql(`create policy "only_paid" on storage.objects as restrictive for insert to authenticated with check (${check});
        create policy "${bucket} insert" on storage.objects for insert to authenticated with check (bucket_id = '${bucket}')`)
      const { body } = await user(`POST /object/${bucket}/new.txt`, { body: 'x' })
      await sql(`drop policy "only_paid" on storage.objects; drop policy "${bucket} insert" on storage.objects`)
      return [body.code, body.message]
    }
    await sql(`create schema hidden; create table public.secrets (id int); create table hidden.secrets (id int);
      revoke all on public.secrets from public, authenticated;
      create function public.not_today() returns boolean language plpgsql as
        $$ begin raise 'permission denied for once: not today' using errcode = '42501'; end $$;
      create function public.no_secret() returns boolean language plpgsql as
        $$ begin return exists (select from public.secrets); end $$`)
    const refused = ['AccessDenied', 'new row violates row-level security policy']
    const plain = ['AccessDenied', 'Access denied']
    expect(await told('false')).toEqual(refused)
    expect(await told('exists (select from public.secrets)')).toEqual(plain)
    expect(await told('public.no_secret()')).toEqual(plain)
    expect(await told('exists (select from hidden.secrets)')).toEqual(plain)
    expect(await told('public.not_today()')).toEqual(['AccessDenied', 'permission denied for once: not today'])
    await sql('drop function public.not_today, public.no_secret; drop table public.secrets; drop schema hidden cascade')
  })

  it('with claims of any form', async () => {
    for (const sub of ['not a uuid', 'a\u0000b', '\ud800', "'; drop table storage.objects --", 'x'.repeat(5_000)]) {
      const user = calling(storage, await signer.user(sub))
      const bucket = await newBucket()
      await sql(`create policy "${bucket} all" on storage.objects to authenticated using (bucket_id = '${bucket}')`)
      const reply = await user(`POST /object/${bucket}/new.txt`, { body: 'x' })
      expect({ sub, status: reply.status }).not.toEqual({ sub, status: 500 })
    }
  })
})

describe('a bucket that does not exist', () => {
  it('is named to a caller whom the policies refuse', async () => {
    const bucket = await newBucket()
    const user = calling(storage, await signer.user(randomUUID()))
    await sql(`create policy reading on storage.objects for select to authenticated using (true)`)
    const attempts = (b: string): [unknown, Attempt][] => [
      ['NoSuchBucket', [`POST /object/${b}/new.txt`, { body: 'x' }]],
      ['NoSuchBucket', [`POST /object/${b}/new.txt`, { body: 'x', headers: { 'x-upsert': 'true' } }]],
      ['NoSuchBucket', [`PUT /object/${b}/new.txt`, { body: 'x' }]],
      [404, resumable(b)[0]?.attempt as Attempt],
      [
        'InvalidRequest',
        [
          'POST /object/copy',
          { body: { bucketId: bucket, sourceKey: A, destinationBucket: b, destinationKey: 'new.txt' } },
        ],
      ],
      ['AccessDenied', [`POST /object/upload/sign/${b}/new.txt`]],
    ]
    for (const [code, attempt] of attempts('missing')) {
      const reply = await user(...attempt)
      expect({ attempt, got: codeOf(reply) }).toEqual({ attempt, got: code })
    }
    expect((await user('POST /object/missing/new.txt', { body: 'x' })).body).toEqual(NO_BUCKET)
    for (const [code, attempt] of attempts(bucket)) {
      const reply = await user(...attempt)
      expect({ attempt, got: codeOf(reply) }).toEqual({ attempt, got: code === 404 ? 403 : 'AccessDenied' })
    }
    await sql('drop policy reading on storage.objects')
  })
})

describe('an existing object', () => {
  it('cannot be distinguished from a missing one by an anonymous deletion', async () => {
    const [bucket, open] = [await newBucket(), await newBucket({ public: true })]
    const anon = calling(storage, storage.keys.anon)
    const told = async (request: string, call?: Call) => {
      const { status, body } = await anon(request, call)
      return { status, body }
    }
    for (const b of [bucket, open, 'missing']) {
      expect(await told(`DELETE /object/${b}/${A}`)).toEqual(await told(`DELETE /object/${bucket}/missing`))
      expect(await told(`DELETE /object/${b}`, { body: { prefixes: [A] } })).toEqual({ status: 200, body: [] })
    }
    expect(await told(`GET /object/public/${bucket}/${A}`)).toEqual(await told(`GET /object/public/missing/${A}`))
    expect(await told(`GET /object/${bucket}/${A}`)).toEqual(await told(`GET /object/${bucket}/missing`))
    expect(await told(`POST /object/${bucket}/${A}`)).toEqual(await told(`POST /object/${bucket}/missing`))
  })

  it('is public as long as its bucket is', async () => {
    const bucket = await newBucket({ public: true })
    const read = async () => codeOf(await calling(storage)(`GET /object/public/${bucket}/${A}`))
    expect(await read()).toBe(200)
    await service(`PUT /bucket/${bucket}`, { body: { public: false } })
    expect(await read()).toBe('NoSuchBucket')
    await service(`PUT /bucket/${bucket}`, { body: { public: true } })
    for (const body of ['two', 'three']) {
      await service(`PUT /object/${bucket}/${A}`, { body })
      expect((await calling(storage)(`GET /object/public/${bucket}/${A}`)).body).toBe(body)
    }
    await service(`DELETE /object/${bucket}/${A}`)
    expect(await read()).toBe('NoSuchKey')
  })
})

describe('an object of a public bucket', () => {
  it('is read whatever the policies say, even if they fail', async () => {
    const bucket = await newBucket({ public: true })
    const other = await newBucket()
    await sql(`create policy "${bucket}" on storage.objects to authenticated
      using (case when bucket_id in ('${bucket}', '${other}') then auth.uid() is not null end)`)
    const user = calling(storage, await signer.user('no uuid'))
    for (const one of [`/object/${bucket}`, `/object/authenticated/${bucket}`, `/object/info/${bucket}`])
      expect([one, codeOf(await user(`GET ${one}/${A}`))]).toEqual([one, 200])
    expect(codeOf(await user(`GET /object/${bucket}/missing`))).toBe('NoSuchKey')
    expect(codeOf(await user(`GET /object/${other}/${A}`))).toBe('InvalidParameter')
    expect(codeOf(await user(`POST /object/sign/${bucket}/${A}`, { body: { expiresIn: 60 } }))).toBe('InvalidParameter')
    await sql(`drop policy "${bucket}" on storage.objects`)
  })

  it('is read without evaluating the policies', async () => {
    const bucket = await newBucket({ public: true })
    await sql(`create table public.asked (n int);
      create function public.ask() returns boolean language plpgsql security definer as
        $$ begin insert into public.asked values (1); return true; end $$;
      create policy "${bucket}" on storage.objects for select to authenticated using (bucket_id = '${bucket}' and public.ask())`)
    const user = calling(storage, await signer.user(randomUUID()))
    const asked = () => sql('select count(*)::int as count from public.asked')
    for (const one of ['GET /object', 'HEAD /object', 'GET /object/authenticated', 'GET /object/info'])
      expect([one, codeOf(await user(`${one}/${bucket}/${A}`))]).toEqual([one, 200])
    expect(await asked()).toEqual([{ count: 0 }])
    expect(codeOf(await user(`POST /object/sign/${bucket}/${A}`, { body: { expiresIn: 60 } }))).toBe(200)
    expect(await asked()).toEqual([{ count: 1 }])
    await sql(`drop policy "${bucket}" on storage.objects; drop function public.ask(); drop table public.asked`)
  })

  it('is read in its newest version, and no other', async () => {
    const bucket = await newBucket({ public: true })
    const { body: info } = await service(`GET /object/info/${bucket}/${A}`)
    const other = randomUUID()
    const of = (version: string) => `${A}?versionId=${version}`
    const sign = (versionId: string) =>
      service(`POST /object/sign/${bucket}/${A}`, { body: { expiresIn: 60, versionId } })
    const to = (name: string, sourceVersionId: string) => ({
      body: { bucketId: bucket, sourceKey: A, destinationKey: name, sourceVersionId },
    })
    for (const version of [info.version, other]) {
      const expected = version === other ? 'NoSuchKey' : 200
      for (const path of ['object/public', 'object/authenticated', 'object/info', 'object'])
        expect([path, codeOf(await service(`GET /${path}/${bucket}/${of(version)}`))]).toEqual([path, expected])
      expect(codeOf(await sign(version))).toBe(expected)
      expect(codeOf(await service('POST /object/copy', to(`copy of ${version}`, version)))).toBe(expected)
    }
    expect(codeOf(await service('POST /object/move', to('moved', other)))).toBe('NoSuchKey')
    expect(codeOf(await service('POST /object/move', to('moved', info.version)))).toBe(200)
    const versioned = { name: randomUUID(), versioning_status: 'ENABLED' }
    expect(codeOf(await service('POST /bucket', { body: versioned }))).toBe('InvalidRequest')
    expect(codeOf(await service(`PUT /bucket/${bucket}`, { body: { public: true, ...versioned } }))).toBe(
      'InvalidRequest',
    )
    expect(
      codeOf(await service(`PUT /bucket/${bucket}`, { body: { public: true, versioning_status: 'SUSPENDED' } })),
    ).toBe(200)
  })
})

describe('rows that the owner wrote by SQL', () => {
  it("refer only to bytes of the owner's own objects", async () => {
    const theirs = await newStorage()
    const other = calling(theirs, theirs.keys.service)
    await other('POST /bucket', { body: { name: 'b' } })
    await other('POST /object/b/secret.txt', { body: 'secret' })
    const { version } = (await other('GET /object/info/b/secret.txt')).body
    const bucket = await newBucket({ public: true })
    for (const written of [
      version,
      `../../${theirs.ref}/storage/${version}`,
      `x/../../../${version}`,
      '',
      ' ',
      null,
      'ä\r\n',
    ]) {
      await sql('update storage.objects set version = $1 where bucket_id = $2', [written, bucket])
      for (const request of [`GET /object/public/${bucket}/${A}`, `GET /object/${bucket}/${A}`]) {
        expect({ written, got: codeOf(await service(request)) }).toEqual({ written, got: 'NoSuchKey' })
      }
      const copied = { body: { bucketId: bucket, sourceKey: A, destinationKey: randomUUID() } }
      expect(codeOf(await service('POST /object/copy', copied))).toBe('NoSuchKey')
    }
    expect((await other('GET /object/b/secret.txt')).body).toBe('secret')
  })

  it('with lines in the version and no metadata cause no error', async () => {
    const bucket = await newBucket({ public: true })
    await sql('update storage.objects set version = $1, metadata = null where bucket_id = $2', [
      '1\r\nx-evil: 1',
      bucket,
    ])
    for (const [request, status] of [
      [`GET /object/public/${bucket}/${A}`, 400],
      [`HEAD /object/public/${bucket}/${A}`, 200],
      [`GET /object/info/${bucket}/${A}`, 200],
    ] as const) {
      const reply = await service(request)
      expect([request, reply.status, reply.headers.get('x-evil')]).toEqual([request, status, null])
    }
  })

  it('with more metadata than the server writes count as rows without any', async () => {
    const bucket = await newBucket({ public: true })
    const metadata = { mimetype: 'image/png', size: 4, more: 'x'.repeat(20_000) }
    await sql('update storage.objects set metadata = $1::jsonb where bucket_id = $2', [
      JSON.stringify(metadata),
      bucket,
    ])
    const reply = await service(`HEAD /object/public/${bucket}/${A}`)
    expect([reply.status, reply.headers.get('content-type')]).toEqual([200, 'application/octet-stream'])
    const page = await service(`POST /object/list-v2/${bucket}`, { body: {} })
    expect(page.body.objects).toMatchObject([{ name: A, metadata: null }])
    const types = Array.from({ length: 2_000 }, (_, n) => `a/b${n}`)
    await sql('update storage.buckets set allowed_mime_types = $1 where id = $2', [types, bucket])
    expect((await service(`GET /bucket/${bucket}`)).body.allowed_mime_types).toEqual(types.slice(0, 1_000))
    const put = (type: string) =>
      service(`PUT /object/${bucket}/${A}`, { body: 'x', headers: { 'content-type': type } })
    expect([codeOf(await put('a/b999')), codeOf(await put('a/b1000'))]).toEqual([200, 'InvalidMimeType'])
  })

  it.each<[string, unknown]>([
    [
      'lines in every field',
      { mimetype: 'a/b\r\nx-evil: 1', cacheControl: 'no\nx-evil: 1', eTag: '"\r\nx-evil: 1', xRobotsTag: '\r\n' },
    ],
    ['unicode', { mimetype: 'ä/☃', cacheControl: '☃', eTag: '"☃"', xRobotsTag: '☃', lastModified: '☃', size: 4 }],
    ['long text', { mimetype: 'x'.repeat(100_000), cacheControl: 'x'.repeat(100_000), size: 4 }],
    ['a size that is none', { size: 'many' }],
    ['a negative size', { size: -1 }],
    ['a size too large', { size: 1e300 }],
    ['a size too small', { size: 1 }],
    ['a larger size', { size: 400_000 }],
    ['times of no calendar', { lastModified: '+275760-09-13T00:00:00.001Z', size: 4 }],
    ['objects for text', { mimetype: {}, cacheControl: [], eTag: 7, lastModified: {}, size: {} }],
    ['no object', 'text'],
    ['a list', [1]],
    ['null', null],
  ])('with %s in the metadata cause no error', async (_, metadata) => {
    const bucket = await newBucket({ public: true })
    await sql(
      `update storage.objects set metadata = $1::jsonb, user_metadata = $1::jsonb,
      created_at = '-infinity', updated_at = 'infinity' where bucket_id = $2`,
      [JSON.stringify(metadata), bucket],
    )
    const requests: Attempt[] = [
      [`GET /object/public/${bucket}/${A}`],
      [`GET /object/public/${bucket}/${A}`, { headers: { range: 'bytes=2-3' } }],
      [`GET /object/public/${bucket}/${A}`, { headers: { range: 'bytes=-2', 'if-none-match': '"x"' } }],
      [`HEAD /object/public/${bucket}/${A}`],
      [`GET /object/info/${bucket}/${A}`],
      [`POST /object/list/${bucket}`, { body: { prefix: 'dir' } }],
      [`POST /object/list-v2/${bucket}`, { body: { sortBy: { column: 'updated_at' } } }],
      ['POST /object/copy', { body: { bucketId: bucket, sourceKey: A, destinationKey: 'copy' } }],
      [`PUT /object/${bucket}/${A}`, { body: 'new' }],
    ]
    for (const request of requests) {
      const reply = await service(...request)
      expect({ request, known: [200, 206, 400, 416].includes(reply.status) }).toEqual({ request, known: true })
      expect(reply.headers.get('x-evil')).toBeNull()
    }
  })
})

describe('a project', () => {
  const after = { headers: { 'x-test-clock': String(Date.now() + 3_600_000) } }

  it('answers nothing while it is paused, and again afterwards; a deleted one does not exist', async () => {
    const { ref, ...rest } = await newStorage(organization)
    const { owner } = organization
    const paused = { ref, ...rest }
    const call = calling(paused, rest.keys.service)
    const open = calling(paused)
    await call('POST /bucket', { body: { name: 'b', public: true } })
    await call('POST /object/b/a.txt', { body: 'a' })
    expect(codeOf(await open('GET /object/public/b/a.txt'))).toBe(200)
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    for (const later of [{}, after]) {
      expect(codeOf(await open('GET /object/public/b/a.txt', later))).toBe('ProjectPaused')
      expect(codeOf(await call('PUT /object/b/a.txt', { body: 'x', ...later }))).toBe('ProjectPaused')
    }
    expect(await instanceState(ref)).toBe('paused')
    await owner.post(`/v1/projects/${ref}/restore`)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    const later = { headers: { 'x-test-clock': String(Date.now() + 7_200_000) } }
    expect((await open('GET /object/public/b/a.txt', later)).body).toBe('a')
    await owner.delete(`/v1/projects/${ref}`)
    await untilGone(owner, ref)
    expect(codeOf(await open('GET /object/public/b/a.txt', later))).toBe('NoSuchProject')
    expect(await instanceState(ref)).toBeUndefined()
    // Something that a user may do at any time is not logged as our error.
    const errors = (await workerLogs(ref)).filter((line) => line.includes('"level":"error"'))
    expect(errors).toEqual([])
  })

  it('gets its storage again with the next request after a superuser dropped it', async () => {
    const emptied = await newStorage(organization)
    const run = await database(emptied)
    await run('drop schema storage cascade')
    const call = calling(emptied, emptied.keys.service)
    const replies = await Promise.all([call('GET /bucket'), call('GET /bucket')])
    expect(replies.map(codeOf)).toContain(200)
    expect(codeOf(await call('POST /bucket', { body: { name: 'b' } }))).toBe(200)
    expect(codeOf(await call('POST /object/b/a.txt', { body: 'a' }))).toBe(200)
  })

  it('keeps its tables from its owner, and reports a table that a superuser dropped', async () => {
    const broken = await newStorage(organization)
    const run = await database(broken)
    const call = calling(broken, broken.keys.service)
    await call('POST /bucket', { body: { name: 'b' } })
    for (const change of [
      'drop table storage.objects',
      'drop schema storage cascade',
      'alter table storage.objects disable row level security',
      'alter table storage.objects rename column version to other',
      'alter table storage.objects owner to postgres',
      'drop trigger remember_deleted on storage.objects',
      'drop owned by supabase_storage_admin',
      'drop role supabase_storage_admin',
    ]) {
      const { status, body } = await runSql(organization.owner, broken.ref, change)
      expect({ change, status, code: body.code }).toEqual({ change, status: 400, code: '42501' })
    }
    expect(codeOf(await call('POST /object/b/a.txt', { body: 'a' }))).toBe(200)
    await run('drop table storage.objects')
    expect(codeOf(await call('GET /object/b/a.txt'))).toBe('DatabaseSchemaMismatch')
    expect(codeOf(await call('POST /object/b/a.txt', { body: 'a' }))).toBe('DatabaseSchemaMismatch')
  })

  it('is distinguished from one that does not exist', async () => {
    for (const ref of ['aaaaaaaaaaaaaaaaaaaa', 'short', `..%2f${storage.ref}`]) {
      const url = storage.url.replace(storage.ref, ref)
      expect((await calling({ url }, storage.keys.service)('GET /bucket')).status).toBe(404)
    }
  })
})
