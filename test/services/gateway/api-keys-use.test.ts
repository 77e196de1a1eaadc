import { randomUUID } from 'node:crypto'
import type { StorageClient } from '@supabase/storage-js'
import { beforeAll, describe, expect, it } from 'vitest'
import { baseUrl, type Caller, newOrganization, unhurried } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { createProject } from '../../support/projects.ts'
import { clientOf, newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, openSql, type Sql, signerOf } from '../../support/storage-http.ts'

const DISABLED = 'Legacy API keys are disabled'

let project: TestStorage
let caller: () => Caller
let sql: Sql
let user: string
beforeAll(async () => {
  const organization = await newOrganization()
  caller = unhurried(organization.owner)
  project = await newStorage(organization)
  const opened = await openSql(project)
  sql = opened.sql
  const { user: tokenOf } = await signerOf(project)
  user = await tokenOf(randomUUID())
  return opened.close
})

const path = () => `/v1/projects/${project.ref}/api-keys`
async function newKey(template?: Record<string, unknown>) {
  const name = `key_${randomUUID().slice(0, 8)}`
  const fields = { type: 'secret', name, secret_jwt_template: template }
  const { status, body } = await caller().post(`${path()}?reveal=true`, fields)
  expect(status).toBe(201)
  return {
    name,
    id: body.id as string,
    key: body.api_key as string,
    remove: () => caller().delete(`${path()}/${body.id}`),
  }
}

const listBuckets = async (headers: Record<string, string>, url = project.url) => {
  const { status, body } = await calling({ url })('GET /bucket', { headers })
  return status === 200 ? (body as { name: string }[]).map(({ name }) => name) : [status, body.message]
}

const functionAt = async (slug: string, headers: Record<string, string>) => {
  const response = await fetch(new URL(`/p/${project.ref}/functions/v1/${slug}`, baseUrl), { headers })
  return { status: response.status, text: await response.text() }
}

describe('a key on the storage server', () => {
  it.each([
    ['as apikey alone, as the command line sends it', (key: string) => ({ apikey: key })],
    ['as the bearer', (key: string) => ({ authorization: `Bearer ${key}` })],
    ['without the word before it', (key: string) => ({ authorization: key })],
    ['as both, as storage-js sends it', (key: string) => ({ authorization: `Bearer ${key}`, apikey: key })],
  ])('is accepted %s, on the address of the project and on the common one', async (_, headersOf) => {
    const bucket = await newBucket(project)
    const headers = headersOf(project.keys.secret)
    expect(await listBuckets(headers)).toContain(bucket)
    expect(await listBuckets(headers, new URL('/storage/v1', baseUrl).href)).toContain(bucket)
  })

  it('may accompany the token of a user, which decides who calls, on both addresses of the project', async () => {
    const bucket = await newBucket(project)
    await sql(`create policy "${bucket}" on storage.buckets for select to authenticated using (id = '${bucket}')`)
    const common = new URL('/storage/v1', baseUrl).href
    const [theirs = ''] = await keysOf(await createProject(project.organization))
    for (const apikey of [project.keys.publishable, project.keys.anon]) {
      const headers = { apikey, authorization: `Bearer ${user}` }
      expect(await listBuckets(headers)).toEqual([bucket])
      expect(await listBuckets(headers, common)).toEqual([bucket])
    }
    const { key, remove } = await newKey()
    await remove()
    const forged = `${project.keys.anon.split('.').slice(0, 2).join('.')}.${'A'.repeat(43)}`
    for (const apikey of ['', 'x', key, forged]) {
      expect((await listBuckets({ apikey, authorization: `Bearer ${user}` }, common))[0]).toBe(404)
    }
    expect((await listBuckets({ apikey: theirs, authorization: `Bearer ${user}` }, common))[0]).toBe(400)
    await sql(`drop policy "${bucket}" on storage.buckets`)
  })

  it.each(['Bearer', 'bearer ', ''])(
    'is accepted as apikey beside the empty authorization "%s"',
    async (authorization) => {
      const bucket = await newBucket(project)
      const headers = { authorization, apikey: project.keys.secret }
      expect(await listBuckets(headers)).toContain(bucket)
      expect(await listBuckets(headers, new URL('/storage/v1', baseUrl).href)).toContain(bucket)
    },
  )

  it('is not passed to the functions of the project, unlike the token of a user', async () => {
    const bucket = await newBucket(project)
    await sql(`create policy "${bucket}" on storage.buckets for select to authenticated
      using (id = '${bucket}' and current_setting('request.jwt', true) = '')`)
    const { key } = await newKey({ role: 'authenticated' })
    expect(await listBuckets({ apikey: key })).toContain(bucket)
    expect(await listBuckets({ authorization: `Bearer ${user}` })).not.toContain(bucket)
    await sql(`drop policy "${bucket}" on storage.buckets`)
  })

  it('gives storage-js full access if it is secret, and the access that policies give everybody if it is publishable', async () => {
    const id = `files-${randomUUID()}`
    const secret = clientOf(project, project.keys.secret)
    const publishable = clientOf(project, project.keys.publishable)
    expect(await secret.createBucket(id)).toMatchObject({ error: null })
    expect((await publishable.createBucket(`${id}-2`)).error?.message).toContain('row-level security')
    for (const name of ['open.txt', 'closed.txt']) {
      expect(await secret.from(id).upload(name, name)).toMatchObject({ error: null })
    }
    await sql(
      `create policy "${id}" on storage.objects for select to anon using (bucket_id = '${id}' and name = 'open.txt')`,
    )
    const names = async (client: StorageClient) =>
      ((await client.from(id).list()).data ?? []).map(({ name }) => name).sort()
    expect(await names(secret)).toEqual(['closed.txt', 'open.txt'])
    expect(await names(publishable)).toEqual(['open.txt'])
    expect((await publishable.from(id).upload('new.txt', 'x')).error?.message).toContain('row-level security')
    expect(await (await publishable.from(id).download('open.txt')).data?.text()).toBe('open.txt')
    expect((await publishable.from(id).download('closed.txt')).error).toBeTruthy()
  })

  it('has the role and the claims of its template, also after they change', async () => {
    const bucket = await newBucket(project)
    await sql(`create policy "${bucket}" on storage.buckets for select to authenticated
      using (id = '${bucket}' and auth.jwt() -> 'app' ->> 'level' = '3' and auth.uid() is not null)`)
    const { id, key } = await newKey({ role: 'authenticated', sub: randomUUID(), app: { level: 3 } })
    expect(await listBuckets({ apikey: key })).toEqual([bucket])
    await caller().patch(`${path()}/${id}`, { secret_jwt_template: { role: 'authenticated', app: { level: 2 } } })
    expect(await listBuckets({ apikey: key })).toEqual([])
    await caller().patch(`${path()}/${id}`, { secret_jwt_template: null })
    expect(await listBuckets({ apikey: key })).toContain(bucket)
  })

  it('is refused after it is deleted, in another project, or with a changed character', async () => {
    const { key, remove } = await newKey()
    const common = new URL('/storage/v1', baseUrl).href
    expect(await listBuckets({ apikey: key })).not.toContain(400)
    expect(await listBuckets({ apikey: key }, common)).not.toContain(400)
    expect((await remove()).status).toBe(200)
    const [theirs] = await keysOf(await createProject(project.organization))
    const changed = `${project.keys.secret.slice(0, -1)}${project.keys.secret.endsWith('A') ? 'B' : 'A'}`
    for (const wrong of [key, theirs, changed, 'sb_secret_', 'sb_publishable_x', `${project.keys.secret} `.repeat(2)]) {
      expect(await listBuckets({ authorization: `Bearer ${wrong}` })).toEqual([400, 'Invalid API key'])
    }
    expect(await listBuckets({ apikey: key }, common)).toEqual([400, 'Invalid API key'])
    expect((await listBuckets({ apikey: changed }, common))[0]).toBe(404)
  })
})

const keysOf = async (ref: string): Promise<string[]> =>
  (await caller().get(`/v1/projects/${ref}/api-keys?reveal=true`)).body
    .slice(2)
    .map((key: { api_key: string }) => key.api_key)

describe('a key at a function that verifies callers', () => {
  it('is accepted as apikey and as the bearer, until it is deleted', async () => {
    const program = `Deno.serve((request) => new Response(request.headers.get('apikey') ?? 'none'))`
    const { slug } = await putFunction(project.ref, program, { verifyJwt: true })
    const { key, remove } = await newKey({ role: 'anon' })
    const ways: Record<string, string>[] = [{ apikey: key }, { authorization: `Bearer ${key}` }]
    expect((await functionAt(slug, { apikey: key, authorization: 'Bearer' })).status).toBe(200)
    const callsWith = () => Promise.all(ways.map((headers) => functionAt(slug, headers)))
    expect(await callsWith()).toEqual([
      { status: 200, text: key },
      { status: 200, text: 'none' },
    ])
    expect((await functionAt(slug, { apikey: project.keys.publishable })).status).toBe(200)
    await remove()
    expect((await callsWith()).map(({ status }) => status)).toEqual([401, 401])
  })
})

describe('the environment of a function', () => {
  const NAMES = ['SUPABASE_PUBLISHABLE_KEYS', 'SUPABASE_SECRET_KEYS', 'SUPABASE_JWKS']

  it('has the keys by their names, and each change at once', async () => {
    const program = `Deno.serve(() => Response.json(${JSON.stringify(NAMES)}.map((name) => JSON.parse(Deno.env.get(name)))))`
    const { slug } = await putFunction(project.ref, program)
    const read = async () => {
      const { status, text } = await functionAt(slug, {})
      expect([status, text]).toEqual([200, expect.stringMatching(/^\[/)])
      return JSON.parse(text)
    }
    const [publishable, secret, jwks] = await read()
    expect(publishable).toEqual({ default: project.keys.publishable })
    expect(secret).toMatchObject({ default: project.keys.secret })
    expect(jwks).toEqual({ keys: [] })
    const made = await newKey()
    expect((await read())[1]).toEqual({ ...secret, [made.name]: made.key })
    const renamed = `${made.name}_2`
    await caller().patch(`${path()}/${made.id}`, { name: renamed })
    expect((await read())[1]).toEqual({ ...secret, [renamed]: made.key })
    await made.remove()
    expect((await read())[1]).toEqual(secret)
    const signing = await caller().post(`/v1/projects/${project.ref}/config/auth/signing-keys`, { algorithm: 'ES256' })
    expect(signing.status).toBe(201)
    expect((await read())[2]).toEqual({ keys: [signing.body.public_jwk] })
  })
})

describe('the legacy keys', () => {
  it('are refused while they are disabled; tokens of users, other keys and signed URLs still work', async () => {
    const { slug } = await putFunction(project.ref, `Deno.serve(() => new Response('called'))`, { verifyJwt: true })
    const bucket = await newBucket(project)
    const secret = clientOf(project, project.keys.secret)
    await secret.from(bucket).upload('a.txt', 'a')
    const signed = (await clientOf(project, project.keys.service).from(bucket).createSignedUrl('a.txt', 60)).data
      ?.signedUrl
    const { anon, service } = project.keys
    const waysOf = (key: string): Record<string, string>[] => [{ apikey: key }, { authorization: `Bearer ${key}` }]
    const sent = [anon, service].flatMap(waysOf)
    const set = (enabled: boolean) => caller().put(`${path()}/legacy?enabled=${enabled}`)
    expect((await set(false)).status).toBe(200)
    for (const headers of sent) {
      expect(await listBuckets(headers)).toEqual([400, DISABLED])
      expect((await functionAt(slug, headers)).status).toBe(401)
    }
    expect(await listBuckets({ authorization: `Bearer ${user}` })).not.toContain(400)
    expect((await functionAt(slug, { authorization: `Bearer ${user}` })).text).toBe('called')
    expect((await functionAt(slug, { apikey: project.keys.publishable })).text).toBe('called')
    expect(await listBuckets({ apikey: project.keys.secret })).toContain(bucket)
    expect(await (await fetch(signed ?? '')).text()).toBe('a')
    expect((await set(true)).status).toBe(200)
    expect(await listBuckets({ apikey: service })).toContain(bucket)
    expect((await functionAt(slug, { apikey: anon })).text).toBe('called')
  })
})

describe('a secret key in a browser', () => {
  const BROWSER =
    'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36'
  const answersTo = async (headers: Record<string, string>) => {
    const { slug } = await putFunction(project.ref, "Deno.serve(() => new Response('[]'))")
    const paths = ['rest/v1/', 'storage/v1/bucket', `functions/v1/${slug}`]
    return Promise.all(paths.map((path) => fetch(new URL(`/p/${project.ref}/${path}`, baseUrl), { headers })))
  }
  const statusesOf = async (headers: Record<string, string>) => (await answersTo(headers)).map(({ status }) => status)

  it.each([
    ['as apikey', (key: string) => ({ apikey: key })],
    ['as the bearer', (key: string) => ({ authorization: `Bearer ${key}` })],
    ['as both', (key: string) => ({ apikey: key, authorization: `Bearer ${key}` })],
  ])('is refused by each service, for the page to read: %s', async (_, headersOf) => {
    for (const answer of await answersTo({ ...headersOf(project.keys.secret), 'user-agent': BROWSER })) {
      expect(answer.status).toBe(401)
      expect(answer.headers.get('access-control-allow-origin')).toBe('*')
      expect(answer.headers.get('sb-error-code')).toBe('UNAUTHORIZED_INVALID_API_KEY_TYPE')
      expect(await answer.json()).toEqual({
        message: 'Forbidden use of secret API key in browser',
        hint: expect.stringContaining('Delete this secret API key immediately!'),
      })
    }
  })

  it('is accepted from servers, and other keys from browsers', async () => {
    const { secret, publishable, anon, service } = project.keys
    for (const agent of ['node', 'Deno/2.1 (variant; SupabaseEdgeRuntime/1.70.3)', 'curl/8.5.0']) {
      expect(await statusesOf({ apikey: secret, 'user-agent': agent })).toEqual([200, 200, 200])
    }
    expect((await clientOf(project, secret).listBuckets()).error).toBeNull()
    for (const apikey of [publishable, anon, service]) {
      expect(await statusesOf({ apikey, 'user-agent': BROWSER })).toEqual([200, 200, 200])
    }
    const common = new URL('/storage/v1', baseUrl).href
    expect(await listBuckets({ apikey: secret, 'user-agent': BROWSER }, common)).toEqual([401, expect.any(String)])
    expect(await listBuckets({ apikey: publishable, 'user-agent': BROWSER })).toEqual([])
  })
})
