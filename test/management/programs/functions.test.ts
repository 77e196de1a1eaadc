import { asc, eq } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { auditLog, functionDeployments } from '../../../src/model/tables/index.ts'
import { baseUrl, type Caller, control, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { deploy, download, HELLO, tryDeploy } from '../../support/deploys.ts'
import { createProject } from '../../support/projects.ts'

let organization: TestOrganization
let owner: Caller
let ref: string
let base: string
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
})
beforeEach(async () => {
  ref = await createProject(organization)
  base = `/v1/projects/${ref}/functions`
})

const text = { 'content-type': 'text/plain' }
const create = (query: string, raw: BodyInit, type = 'text/plain') =>
  owner.send('POST', `${base}?${query}`, { raw, headers: { 'content-type': type } })
const messageContaining = (message: string) => ({ message: expect.stringContaining(message) })

describe('functions', () => {
  it('have slugs of letters, digits, _ and -', async () => {
    const path = `${base}/not%20a%20slug`
    for (const reply of [await owner.get(`${path}/body`), await owner.delete(path)]) {
      expect(reply).toMatchObject({ status: 400, body: messageContaining('path.function_slug') })
    }
  })

  it('are listed, shown and deleted', async () => {
    expect(await owner.get(base)).toMatchObject({ status: 200, body: [] })
    const one = await deploy(owner, ref, { slug: 'one' })
    const two = await deploy(owner, ref, { slug: 'two' })
    expect((await owner.get(base)).body).toEqual([one, two])
    expect(await owner.get(`${base}/two`)).toMatchObject({ status: 200, body: two })
    expect(await owner.get(`${base}/three`)).toMatchObject({ status: 404, body: { message: 'Function not found' } })
    expect(await owner.get(`${base}/not.a.slug`)).toMatchObject({
      status: 400,
      body: messageContaining('path.function_slug'),
    })
    const deleted = await owner.delete(`${base}/one`)
    expect([deleted.status, deleted.body, deleted.headers.get('content-type')]).toEqual([200, '', null])
    expect(await owner.delete(`${base}/one`)).toMatchObject({ status: 404, body: { message: 'Function not found' } })
    expect((await owner.get(base)).body).toEqual([two])
    const traces = await control
      .select()
      .from(auditLog)
      .where(eq(auditLog.projectRef, ref))
      .orderBy(asc(auditLog.createdAt))
    const actions = traces.map(({ action }) => action).filter((action) => action.startsWith('function.'))
    expect(actions).toEqual(['function.deploy', 'function.deploy', 'function.delete'])
  })

  it('return their files unchanged', async () => {
    const files = {
      'functions/a/index.ts': 'import "../é b.ts"\n',
      'functions/é b.ts': '// not in the bundle: é\r\n\r\n/*\r\n--source-\r\n*/',
      'deno.json': '{}',
    }
    await deploy(owner, ref, { files })
    expect(await download(owner, ref, 'hello')).toEqual(
      Object.fromEntries(Object.entries(files).map(([path, contents]) => [`source/${path}`, contents])),
    )
    const { body, headers } = await owner.get(`${base}/hello/body`)
    expect(headers.get('content-type')).toMatch(/^multipart\/form-data; boundary=source-[\da-f-]{36}$/)
    expect(body).toContain('{"deno2_entrypoint_path":"source/functions/a/index.ts"}')
    expect(body).toContain('Supabase-Path: source/functions/é b.ts\r\n')
    expect(await owner.get(`${base}/missing/body`)).toMatchObject({ status: 404 })
  })

  it('return no part that the contents of a file imitate', async () => {
    await deploy(owner, ref)
    const { headers } = await owner.get(`${base}/hello/body`)
    const [, boundary] = (headers.get('content-type') ?? '').split('boundary=')
    const forged = `\r\n--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="../forged"\r\n\r\n`
    await deploy(owner, ref, { files: { 'index.ts': HELLO, 'notes.txt': forged } })
    expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': HELLO, 'source/notes.txt': forged })
  })

  it('require the right to write them', async () => {
    const reader = await newMember(organization, 'read-only')
    await deploy(owner, ref)
    expect(await tryDeploy(reader, ref)).toMatchObject({ status: 403 })
    expect(await download(reader, ref, 'hello')).toEqual({ 'source/index.ts': HELLO })
    expect(await deploy(await newMember(organization, 'developer'), ref)).toMatchObject({ version: 2 })
    const stranger = (await newOrganization()).owner
    expect(await tryDeploy(stranger, ref)).toMatchObject({ status: 404, body: { message: 'Project not found' } })
    expect(await stranger.get(`${base}/hello/body`)).toMatchObject({ status: 404 })
  })
})

describe('POST /v1/projects/{ref}/functions', () => {
  it('creates a function from one text, or from the body in JSON', async () => {
    const made = await create('slug=plain&name=Plain&verify_jwt=false&entrypoint_path=file:///src/index.ts', HELLO)
    expect(made).toMatchObject({ status: 201, body: { slug: 'plain', name: 'Plain', verify_jwt: false, version: 1 } })
    expect(await download(owner, ref, 'plain')).toEqual({ 'source/src/index.ts': HELLO })
    const json = await owner.post(base, { slug: 'json', name: 'J', body: HELLO, verify_jwt: false })
    expect(json).toMatchObject({ status: 201, body: { slug: 'json', name: 'J', verify_jwt: false } })
    expect(await owner.post(base, { slug: 'json', name: 'J', body: HELLO })).toMatchObject({
      status: 409,
      body: { message: 'Duplicated function slug: json' },
    })
  })

  it('accepts JSON that its client sends as text', async () => {
    const client = new SupabaseManagementAPI({ accessToken: owner.token ?? '', baseUrl })
    const { data } = await client.createAFunction(ref, { slug: 'hello', name: 'Hello', body: HELLO, verify_jwt: false })
    expect(data).toMatchObject({ slug: 'hello', name: 'Hello', verify_jwt: false, version: 1 })
    expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': HELLO })
    const { data: changed } = await client.updateAFunction(ref, 'hello', { name: 'Other', body: '// nothing' })
    expect(changed).toMatchObject({ name: 'Other', version: 2 })
    expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': '// nothing' })
    expect(await create('', '{"slug":"a","name":"a"}')).toMatchObject({
      status: 400,
      body: messageContaining('body.body: '),
    })
    expect(await create('slug=block', '{ let a = 1 }')).toMatchObject({ status: 201 })
  })

  it('accepts every query parameter for one text, and treats empty values as missing', async () => {
    const query = 'slug=all&verify_jwt=no&import_map=0&entrypoint_path=src/a.ts&import_map_path='
    expect(await create(`${query}&name=All&ezbr_sha256=of-another-bundler`, HELLO)).toMatchObject({
      status: 201,
      body: {
        slug: 'all',
        name: 'All',
        verify_jwt: false,
        import_map: false,
        ezbr_sha256: expect.stringMatching(/^[\da-f]{64}$/),
      },
    })
    const changed = await owner.send('PATCH', `${base}/all?${query}&name=Other&ezbr_sha256=`, {})
    expect(changed).toMatchObject({ status: 200, body: { slug: 'all', name: 'Other', version: 1 } })
  })

  it.each(['ESZIP2.3\0\0', 'EZBR\x1b\x02'])('refuses an eszip and says what to do instead', async (raw) => {
    const reply = await create('slug=packed', raw, 'application/vnd.denoland.eszip')
    expect(reply).toMatchObject({ status: 400, body: messageContaining('--use-api') })
  })

  it('refuses an invalid value by name', async () => {
    expect(await create('', HELLO)).toMatchObject({ status: 400, body: messageContaining('query.slug: ') })
    expect(await create('slug=1', HELLO)).toMatchObject({ status: 400, body: messageContaining('query.slug: ') })
    expect(await create('slug=a&verify_jwt=2', HELLO)).toMatchObject({
      status: 400,
      body: messageContaining('query.verify_jwt: '),
    })
    expect(await create('slug=a&import_map=true', HELLO)).toMatchObject({
      status: 400,
      body: messageContaining('query.import_map: '),
    })
    expect(await create('slug=a&import_map_path=x', HELLO)).toMatchObject({
      status: 400,
      body: messageContaining('query.import_map_path: '),
    })
    expect(await create('slug=a&entrypoint_path=..', HELLO)).toMatchObject({
      status: 400,
      body: messageContaining('query.entrypoint_path: '),
    })
    expect(await create('slug=a', new Uint8Array([0xff, 0xfe, 0]))).toMatchObject({
      status: 400,
      body: messageContaining('body: '),
    })
    expect(await create('slug=a', '')).toMatchObject({ status: 400, body: messageContaining('body: ') })
    expect(await create('slug=a', 'const = 1')).toMatchObject({
      status: 400,
      body: messageContaining('index.ts:1:7: '),
    })
    expect(await owner.post(base, { slug: 'a', name: 'a' })).toMatchObject({
      status: 400,
      body: messageContaining('body.body: '),
    })
    expect((await owner.get(base)).body).toEqual([])
  })
})

describe('PATCH /v1/projects/{ref}/functions/{function_slug}', () => {
  const change = (query: string, options = {}) => owner.send('PATCH', `${base}/hello?${query}`, options)

  it('changes the settings, or with a body the source', async () => {
    const made = await deploy(owner, ref)
    expect(await change('verify_jwt=false&import_map=false&entrypoint_path=index.ts')).toMatchObject({
      status: 200,
      body: { verify_jwt: false, name: 'hello', version: 1, ezbr_sha256: made.ezbr_sha256 },
    })
    expect(await owner.patch(`${base}/hello`, { name: 'New' })).toMatchObject({
      status: 200,
      body: { name: 'New', verify_jwt: false, version: 1 },
    })
    const written = await change('name=Newer', { raw: 'export default {}', headers: text })
    expect(written).toMatchObject({ status: 200, body: { id: made.id, name: 'Newer', version: 2 } })
    expect(await download(owner, ref, 'hello')).toEqual({ 'source/index.ts': 'export default {}' })
    expect((await change('')).body).toEqual(written.body)
  })

  it('accepts the paths of replies, however long, with and without a body', async () => {
    const entrypoint = `src/${'é '.repeat(100)}%.ts`
    await deploy(owner, ref, {
      files: { [entrypoint]: HELLO, 'deno.json': '{}' },
      metadata: { import_map_path: 'deno.json' },
    })
    const shown = (await owner.get(`${base}/hello`)).body
    const { entrypoint_path, import_map_path } = shown
    const paths = new URLSearchParams({ entrypoint_path, import_map_path, import_map: 'true' })
    expect(await change(`${paths}&verify_jwt=false`)).toMatchObject({ status: 200, body: { version: 1 } })
    const again = await deploy(owner, ref, { files: { [entrypoint]: HELLO }, metadata: { entrypoint_path } })
    expect(again.entrypoint_path).toBe(entrypoint_path.replace('_1/', '_2/'))
    const written = await change(`${new URLSearchParams({ entrypoint_path: again.entrypoint_path })}`, {
      raw: 'export default {}',
      headers: text,
    })
    expect(written).toMatchObject({
      status: 200,
      body: { entrypoint_path: entrypoint_path.replace('_1/', '_3/') },
    })
    expect(await download(owner, ref, 'hello')).toEqual({ [`source/${entrypoint}`]: 'export default {}' })
    for (const ending of ['%', '%ff', 'a%00', '', '%2e%2e/x', 'x'.repeat(1_025)]) {
      const path = entrypoint_path.replace(/source\/.*/, `source/${ending}`)
      expect(await change(`${new URLSearchParams({ entrypoint_path: path })}`)).toMatchObject({
        status: 400,
        body: messageContaining('query.entrypoint_path: '),
      })
    }
  })

  it('refuses an invalid value by name, and an unknown function', async () => {
    expect(await change('verify_jwt=true')).toMatchObject({ status: 404, body: { message: 'Function not found' } })
    expect(await change('', { raw: HELLO, headers: text })).toMatchObject({ status: 404 })
    await deploy(owner, ref)
    expect(await change('slug=other')).toMatchObject({ status: 400, body: messageContaining('query.slug: ') })
    expect(await change('import_map=true')).toMatchObject({
      status: 400,
      body: messageContaining('query.import_map: '),
    })
    expect(await change('import_map_path=x')).toMatchObject({
      status: 400,
      body: messageContaining('query.import_map_path: '),
    })
    expect(await change('entrypoint_path=x')).toMatchObject({
      status: 400,
      body: messageContaining('query.entrypoint_path: '),
    })
    expect(await change('', { raw: 'ESZIP2', headers: text })).toMatchObject({
      status: 400,
      body: messageContaining('--use-api'),
    })
    expect(await change('', { raw: 'const = 1', headers: text })).toMatchObject({
      status: 400,
      body: messageContaining('index.ts:1:7'),
    })
    expect((await owner.get(`${base}/hello`)).body).toMatchObject({ version: 1 })
  })
})

describe('PUT /v1/projects/{ref}/functions', () => {
  const bundle = (slug: string, contents = HELLO) =>
    deploy(owner, ref, { slug, query: '&bundleOnly=true', files: { 'index.ts': contents } })

  it('deploys bundles of several functions, and an unchanged one changes nothing', async () => {
    const old = await deploy(owner, ref, { slug: 'old' })
    const bundles = await Promise.all([bundle('old', 'export default 1'), bundle('new')])
    expect(bundles).toMatchObject([{ id: old.id, version: 2 }, { version: 1 }])
    expect((await owner.get(base)).body).toEqual([old])
    const put = await owner.put(base, bundles)
    expect(put).toMatchObject({ status: 200, body: { functions: [{ id: old.id, version: 2 }, { version: 1 }] } })
    const [first, second] = put.body.functions
    expect(second).toEqual({ ...bundles[1], updated_at: expect.any(Number) })
    expect(first).toEqual({ ...bundles[0], updated_at: expect.any(Number) })
    expect((await owner.get(base)).body).toEqual([first, second])
    expect(await download(owner, ref, 'old')).toEqual({ 'source/index.ts': 'export default 1' })
    expect((await owner.put(base, bundles)).body).toEqual(put.body)
    const rows = await control.select().from(functionDeployments).where(eq(functionDeployments.projectRef, ref))
    expect(rows.filter(({ unusedSince }) => unusedSince !== null).map(({ sha256 }) => sha256)).toEqual([
      old.ezbr_sha256,
    ])
    // The function returns to its former state.
    const back = { ...old, version: 7, status: 'THROTTLED', verify_jwt: false }
    expect((await owner.put(base, [back])).body.functions).toMatchObject([
      { version: 7, status: 'THROTTLED', verify_jwt: false },
    ])
    expect(await download(owner, ref, 'old')).toEqual({ 'source/index.ts': HELLO })
  })

  it('deploys a source whose program is unchanged: another comment, import map or entrypoint', async () => {
    let last = await deploy(owner, ref)
    const redeploy = async (files: Record<string, string>, importMap?: string) => {
      const metadata = { import_map_path: importMap }
      const bundled = await deploy(owner, ref, { query: '&bundleOnly=true', files, metadata })
      const put = await owner.put(base, [bundled])
      expect(put).toMatchObject({ status: 200, body: { functions: [{ version: last.version + 1 }] } })
      last = put.body.functions[0]
      expect(last).toEqual({ ...bundled, updated_at: expect.any(Number) })
      const sent = Object.entries(files).map(([path, contents]) => [`source/${path}`, contents])
      expect(await download(owner, ref, 'hello')).toEqual(Object.fromEntries(sent))
    }
    await redeploy({ 'index.ts': `// A greeting.\n${HELLO}` })
    await redeploy({ 'index.ts': HELLO, 'deno.json': '{}' }, 'deno.json')
    await redeploy({ 'index.ts': HELLO, 'deno.json': '{ }' }, 'deno.json')
    await redeploy({ 'index.ts': HELLO, 'deno.json': '{ }', 'map.json': '{}' }, 'map.json')
    await redeploy({ 'index.ts': HELLO, 'deno.json': '{ }', 'map.json': '{}' }, 'deno.json')
    await redeploy({ 'index.ts': HELLO })
    await redeploy({ 'main.ts': HELLO })
  })

  it('deploys newer bundles for an old client that sends no digest, and nothing that was deployed before', async () => {
    const old = await deploy(owner, ref, { slug: 'old' })
    const bundles = await Promise.all([bundle('old', 'export default 2'), bundle('new')])
    const unnamed = bundles.map(({ ezbr_sha256: _, ...each }) => each)
    const { functions: put } = (await owner.put(base, unnamed)).body
    expect(put).toMatchObject([
      { id: old.id, version: 2, ezbr_sha256: bundles[0].ezbr_sha256 },
      { id: bundles[1].id, version: 1, ezbr_sha256: bundles[1].ezbr_sha256 },
    ])
    expect(await download(owner, ref, 'old')).toEqual({ 'source/index.ts': 'export default 2' })
    // The same bundle again has no higher version, and no newer bundle is left.
    await bundle('old', 'export default 3')
    expect((await owner.put(base, unnamed)).body.functions).toMatchObject([
      { version: 2, ezbr_sha256: put[0].ezbr_sha256 },
      { version: 1 },
    ])
    await owner.put(base, [{ ...put[0], ezbr_sha256: old.ezbr_sha256, version: 3 }])
    expect((await owner.put(base, [{ ...unnamed[0], version: 4 }])).body.functions).toMatchObject([
      { version: 4, ezbr_sha256: old.ezbr_sha256 },
    ])
  })

  it('accepts an empty list, and changes nothing', async () => {
    const kept = await deploy(owner, ref)
    expect(await owner.put(base, [])).toMatchObject({ status: 200, body: { functions: [] } })
    expect((await owner.get(base)).body).toEqual([kept])
  })

  it('refuses an invalid value by name, and then changes nothing', async () => {
    const right = await bundle('right')
    const refused = async (other: object, message: string) => {
      expect(await owner.put(base, [right, { ...right, slug: 'other', ...other }])).toMatchObject({
        status: 400,
        body: messageContaining(message),
      })
      expect((await owner.get(base)).body).toEqual([])
    }
    await refused({}, 'body.1.ezbr_sha256: must be the digest of a bundle')
    await refused({ ezbr_sha256: 'x' }, 'body.1.ezbr_sha256: ')
    await refused({ ezbr_sha256: undefined }, 'body.1.ezbr_sha256: ')
    await refused({ slug: 'right' }, 'must not contain a slug twice')
    await refused({ slug: '1' }, 'body.1.slug: ')
    await refused({ version: 0 }, 'body.1.version: ')
    await refused({ version: 1_000_000_001 }, 'body.1.version: ')
    await refused({ created_at: 253_402_300_800_000 }, 'body.1.created_at: ')
    await refused({ status: 'NEW' }, 'body.1.status: ')
    for (const [field, value] of [
      ['import_map', true],
      ['entrypoint_path', 'file:///other.ts'],
      ['import_map_path', 'deno.json'],
    ] as const) {
      expect(await owner.put(base, [{ ...right, [field]: value }])).toMatchObject({
        status: 400,
        body: messageContaining(`body.0.${field}: must equal that of the bundle`),
      })
    }
    const theirs = await createProject(organization)
    expect(await owner.put(`/v1/projects/${theirs}/functions`, [right])).toMatchObject({ status: 400 })
    expect(await owner.put(base, [{ ...right, id: 'mine' }])).toMatchObject({ status: 200 })
  })
})
