import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { functionDeployments, functions, organizations } from '../../../src/model/tables/index.ts'
import { baseUrl, control, newOrganization, type TestOrganization } from '../../support/api.ts'
import { deploy, download, formOf, HELLO, tryDeploy } from '../../support/deploys.ts'
import { createProject } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
const path = (query = '') => `/v1/projects/${ref}/functions/deploy${query}`
beforeAll(async () => {
  organization = await newOrganization()
  ref = await createProject(organization)
})

/** Serves a module that programs can import. Its response, and with it their build, waits for `before`. */
async function serveModule(before: () => Promise<void>): Promise<string> {
  const web = createServer(async (_request, response) => {
    await before()
    response.writeHead(200, { 'content-type': 'text/javascript' }).end('export default 1')
  })
  onTestFinished(() => void web.close())
  await new Promise<void>((resolve) => {
    web.listen(0, '127.0.0.1', resolve)
  })
  return `http://127.0.0.1:${(web.address() as AddressInfo).port}/module.js`
}

describe('POST /v1/projects/{ref}/functions/deploy', () => {
  it('creates a function, and with each deployment a version of it', async () => {
    const { owner } = organization
    const made = await deploy(owner, ref)
    expect(made).toEqual({
      id: expect.stringMatching(/^[\da-f-]{36}$/),
      slug: 'hello',
      name: 'hello',
      status: 'ACTIVE',
      version: 1,
      created_at: expect.any(Number),
      updated_at: made.created_at,
      verify_jwt: true,
      import_map: false,
      entrypoint_path: `file:///tmp/user_fn_${ref}_${made.id}_1/source/index.ts`,
      ezbr_sha256: expect.stringMatching(/^[\da-f]{64}$/),
    })
    expect(made.created_at).toBeGreaterThan(Date.now() - 60_000)
    const files = { 'src/a b.ts': 'import "./deps.json"\n', 'src/deps.json': '{}', 'deno.json': '{}' }
    const metadata = { import_map_path: 'deno.json', verify_jwt: false, name: 'Hello' }
    const again = await deploy(owner, ref, { files, metadata })
    expect(again).toMatchObject({
      id: made.id,
      name: 'Hello',
      version: 2,
      created_at: made.created_at,
      verify_jwt: false,
      import_map: true,
      entrypoint_path: `file:///tmp/user_fn_${ref}_${made.id}_2/source/src/a%20b.ts`,
      import_map_path: `file:///tmp/user_fn_${ref}_${made.id}_2/source/deno.json`,
    })
    expect(again.ezbr_sha256).not.toBe(made.ezbr_sha256)
    expect(await deploy(owner, ref)).toMatchObject({ version: 3, name: 'Hello', verify_jwt: false, import_map: false })
  })

  const refusals: [string, Parameters<typeof tryDeploy>[2], string][] = [
    ['a slug that begins with a digit', { slug: '1st' }, 'query.slug'],
    ['a slug that is too long', { slug: 'x'.repeat(129) }, 'query.slug'],
    ['no file', { files: {}, metadata: { entrypoint_path: 'index.ts' } }, 'body.file'],
    ['an entrypoint that was not sent', { metadata: { entrypoint_path: 'main.ts' } }, 'body.metadata.entrypoint_path'],
    ['an empty entrypoint', { metadata: { entrypoint_path: '' } }, 'body.metadata.entrypoint_path'],
    ['no entrypoint', { metadata: { entrypoint_path: undefined } }, 'body.metadata.entrypoint_path'],
    [
      'an import map that was not sent',
      { metadata: { import_map_path: 'deno.json' } },
      'body.metadata.import_map_path',
    ],
    ['a file outside', { files: { 'index.ts': '', '../x.ts': '' } }, 'body.file.1'],
    ['a file that is a folder', { files: { 'index.ts': '', 'lib/': '' } }, 'body.file.1'],
    ['one path twice with other bytes', { files: { 'index.ts': '', './index.ts': '1' } }, 'body.file.1'],
    ['a blank name', { metadata: { name: ' ' } }, 'body.metadata.name'],
    ['patterns that are not a list', { metadata: { static_patterns: '*' } }, 'body.metadata.static_patterns'],
    ['a word for verify_jwt', { metadata: { verify_jwt: 'yes' } }, 'body.metadata.verify_jwt'],
    ['a word for bundleOnly', { query: '&bundleOnly=perhaps' }, 'query.bundleOnly'],
  ]
  it.each(refusals)('refuses %s by name', async (_what, deployed, field) => {
    const reply = await tryDeploy(organization.owner, ref, { slug: 'refused', ...deployed })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(`${field}: `) } })
    expect((await organization.owner.get(`/v1/projects/${ref}/functions/refused`)).status).toBe(404)
  })

  it.each([
    ['no metadata', undefined],
    ['metadata that are not JSON', '{'],
    ['metadata that are not an object', '[]'],
  ])('refuses %s', async (_what, metadata) => {
    const form = new FormData()
    form.set('file', new Blob(['']), 'index.ts')
    if (metadata !== undefined) form.set('metadata', metadata)
    const reply = await organization.owner.send('POST', path('?slug=hello'), { raw: form })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.metadata') } })
  })

  it('refuses a file that is sent as text', async () => {
    const form = formOf({ files: {}, metadata: { entrypoint_path: 'index.ts' } })
    form.set('file', 'text')
    const reply = await organization.owner.send('POST', path('?slug=hello'), { raw: form })
    expect(reply).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('body.file.0: must be sent') },
    })
  })

  it('accepts metadata as a file, and the name in place of the slug', async () => {
    const form = formOf({})
    const metadata = JSON.stringify({ entrypoint_path: './index.ts', import_map_path: '', name: 'named' })
    form.set('metadata', new Blob([metadata], { type: 'application/json' }))
    const reply = await organization.owner.send('POST', path(), { raw: form })
    expect(reply).toMatchObject({ status: 201, body: { slug: 'named', name: 'named', import_map: false } })
    form.set('metadata', JSON.stringify({ entrypoint_path: 'index.ts', name: 'no slug' }))
    const refused = await organization.owner.send('POST', path(), { raw: form })
    expect(refused).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('query.slug: is required') },
    })
  })

  it('refuses more than 10 MiB, declared or not', async () => {
    const chunk = new Uint8Array(1024 ** 2)
    let sent = 0
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (sent++ === 12) controller.close()
        else controller.enqueue(chunk)
      },
    })
    const headers = {
      authorization: `Bearer ${organization.owner.token}`,
      'content-type': 'multipart/form-data; boundary=x',
    }
    const streamed = { method: 'POST', body: endless, headers, duplex: 'half' } as RequestInit
    const response = await fetch(new URL(path('?slug=large'), baseUrl), streamed)
    expect(response.status).toBe(413)
    expect(await response.text()).toContain('at most 10485760 bytes')
    const files = { 'index.ts': '', 'large.bin': new Uint8Array(10 * 1024 ** 2) }
    const reply = await tryDeploy(organization.owner, ref, { slug: 'large', files })
    expect(reply).toMatchObject({ status: 413, body: { message: expect.stringContaining('10485760') } })
  })

  it('accepts 9 MiB of files that the program reads, and returns them', async () => {
    const data = randomBytes(9 * 1024 ** 2)
    const files = { 'index.ts': 'Deno.serve(() => new Response("large"))', 'data.bin': new Uint8Array(data) }
    await deploy(organization.owner, ref, { slug: 'large', files, metadata: { static_patterns: ['data.bin'] } })
    const headers = { authorization: `Bearer ${organization.owner.token}` }
    const response = await fetch(new URL(`/v1/projects/${ref}/functions/large/body`, baseUrl), { headers })
    const [, got] = (await response.formData()).getAll('file')
    expect(got instanceof File && data.equals(Buffer.from(await got.arrayBuffer()))).toBe(true)
  })

  it('gives simultaneous deployments versions of their own, except those that a later request has replaced', async () => {
    const { owner } = organization
    const sources = Array.from({ length: 4 }, (_, n) => ({
      slug: 'race',
      files: { 'index.ts': `export default ${n}` },
    }))
    const replies = await Promise.all(sources.map((source) => deploy(owner, ref, source)))
    const bundles = new Map(replies.map(({ version, ezbr_sha256 }) => [version, ezbr_sha256]))
    expect(new Set(bundles.values()).size).toBe(bundles.size)
    expect([...bundles.keys()].sort()).toEqual(Array.from(bundles.keys(), (_, n) => n + 1))
    const { body: now } = await owner.get(`/v1/projects/${ref}/functions/race`)
    expect(now).toEqual(replies.find(({ version }) => version === bundles.size))
    const made = await control.select().from(functionDeployments).where(eq(functionDeployments.slug, 'race'))
    expect(made.filter(({ unusedSince }) => unusedSince === null).map(({ sha256 }) => sha256)).toEqual([
      now.ezbr_sha256,
    ])
    expect(made).toHaveLength(4)
  })

  it('keeps the function of a later request whose build has finished earlier', async () => {
    const { owner } = organization
    const slug = 'overtaken'
    const latest = await deploy(owner, ref, { slug, files: { 'index.ts': 'export default 2' } })
    const later = new Date(Date.now() + 60_000)
    const { id } = latest
    const [row] = await control.update(functions).set({ updatedAt: later }).where(eq(functions.id, id)).returning()
    await control
      .update(functionDeployments)
      .set({ createdAt: later })
      .where(eq(functionDeployments.id, row?.deploymentId ?? ''))
    const reply = await deploy(owner, ref, {
      slug,
      files: { 'index.ts': 'export default 1' },
      metadata: { name: 'one' },
    })
    const { version, name, ezbr_sha256 } = latest
    expect(reply).toMatchObject({ id, version, name, ezbr_sha256 })
    expect(await download(owner, ref, slug)).toEqual({ 'source/index.ts': 'export default 2' })
  })

  it('leaves a function deleted whose deletion was requested during the build', async () => {
    const { owner } = organization
    const slug = 'deleted'
    await deploy(owner, ref, { slug })
    const deletions: number[] = []
    const imported = await serveModule(async () => {
      deletions.push((await owner.delete(`/v1/projects/${ref}/functions/${slug}`)).status)
    })
    const source = { slug, files: { 'index.ts': `import '${imported}'; export default 1` } }
    expect(await deploy(owner, ref, source)).toMatchObject({ slug, version: 1, status: 'ACTIVE' })
    expect(deletions).toEqual([200])
    expect(await owner.get(`/v1/projects/${ref}/functions/${slug}`)).toMatchObject({ status: 404 })
    expect(await deploy(owner, ref, { slug })).toMatchObject({ version: 1 })
    expect(await owner.get(`/v1/projects/${ref}/functions/${slug}`)).toMatchObject({ status: 200 })
  })

  it('accepts a file that is sent twice without a change', async () => {
    const files = { 'index.ts': HELLO, './index.ts': HELLO }
    await deploy(organization.owner, ref, { slug: 'twice', files })
    expect(await download(organization.owner, ref, 'twice')).toEqual({ 'source/index.ts': HELLO })
  })

  it('bundles at most 4 at once for one project, and the others in turn', async () => {
    const { owner } = organization
    // Each bundle waits until the API has answered another request; by then all others that may run would have
    // started.
    let busy = 0
    let most = 0
    const held = await serveModule(async () => {
      most = Math.max(most, ++busy)
      await owner.get(`/v1/projects/${ref}/functions`)
      busy -= 1
    })
    const deploying = Array.from({ length: 8 }, (_, n) =>
      tryDeploy(owner, ref, {
        slug: `crowd-${n}`,
        files: { 'index.ts': `import '${held}?${n}'; export default ${n}` },
      }),
    )
    expect((await Promise.all(deploying)).map(({ status }) => status)).toEqual(Array(8).fill(201))
    expect(most).toBeLessThanOrEqual(4)
  })

  it('refuses more functions than the plan allows, before anything is bundled', async () => {
    const small = await newOrganization()
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, small.id))
    const full = await createProject(small)
    const { id } = await deploy(small.owner, full, { slug: 'f0' })
    const [row] = await control.select().from(functions).where(eq(functions.id, id))
    if (!row) throw new Error('no function')
    const { id: _, ...copy } = row
    await control.insert(functions).values(Array.from({ length: 99 }, (_, n) => ({ ...copy, slug: `f${n + 1}` })))
    const refused = {
      status: 402,
      body: { message: expect.stringContaining('Maximum number of functions reached for Plan') },
    }
    expect(await tryDeploy(small.owner, full, { slug: 'beyond' })).toMatchObject(refused)
    const raw = 'export default {}'
    const headers = { 'content-type': 'text/plain' }
    const base = `/v1/projects/${full}/functions`
    expect(await small.owner.send('POST', `${base}?slug=beyond`, { raw, headers })).toMatchObject(refused)
    const { body: one } = await small.owner.get(`${base}/f0`)
    const entry = { ...one, slug: 'f1', version: 2 }
    expect(await small.owner.put(base, [entry])).toMatchObject({ status: 200 })
    await small.owner.delete(`${base}/f1`)
    const bundled = await deploy(small.owner, full, { slug: 'f1', query: '&bundleOnly=true' })
    const bundledToo = await deploy(small.owner, full, { slug: 'f100', query: '&bundleOnly=true' })
    expect(await small.owner.put(base, [bundled, bundledToo])).toMatchObject(refused)
    expect(await small.owner.put(base, [bundled])).toMatchObject({ status: 200 })
    expect(await deploy(small.owner, full, { slug: 'f0' })).toMatchObject({ version: 2 })
  })

  it('reports file, line and column of what cannot be bundled', async () => {
    const files = { 'index.ts': 'const a = 1\nconst = 2\n' }
    const reply = await tryDeploy(organization.owner, ref, { slug: 'broken', files })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('index.ts:2:7: Expected') } })
  })
})
