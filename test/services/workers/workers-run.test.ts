import { and, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { sealFunctionSecret } from '../../../src/model/secrets/function.ts'
import { functionSecrets, invocations, projects, workers } from '../../../src/model/tables/index.ts'
import {
  baseUrl,
  control,
  newMember,
  newOrganization,
  type TestOrganization,
  tick,
  workerLogs,
} from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { invocationsOf, putFunction } from '../../support/functions.ts'
import { newProject } from '../../support/projects.ts'
import { exchange } from '../../support/storage.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { packed, type Source, saying, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

const newWorker = async (project = ref) => workerOf(await newMember(organization, 'developer'), project)
const fetching = (body: string): Source => ({
  'index.js': `export default { async fetch(request, env) { ${body} } }`,
})

async function setSecrets(project: string, secrets: Record<string, string>) {
  const rows = Object.entries(secrets).map(async ([name, value]) => ({
    ...{ projectRef: project, name, digest: '', updatedAt: new Date() },
    sealedValue: await sealFunctionSecret(inject('encryptionKey'), project, name, value),
  }))
  await control.delete(functionSecrets).where(eq(functionSecrets.projectRef, project))
  await control.insert(functionSecrets).values(await Promise.all(rows))
  const [before] = await control.select().from(projects).where(eq(projects.ref, project))
  const secretsGeneration = (before?.secretsGeneration ?? 0) + 1
  await control.update(projects).set({ secretsGeneration }).where(eq(projects.ref, project))
}

describe('a request', () => {
  it('reaches the worker at the root of its host, complete, and its answer is returned complete', async () => {
    const worker = await newWorker()
    await worker.ship(
      fetching(`
        const { pathname, search } = new URL(request.url)
        const headers = { 'x-path': pathname + search, 'x-method': request.method, 'set-cookie': 'a=b',
          'x-below': request.headers.get('x-forwarded-prefix'), 'x-leaked': [...request.headers.keys()].filter((name) => name.includes('pilothouse')).join() }
        return new Response(request.body, { status: 418, headers })`),
    )
    const body = 'x'.repeat(3_000_000)
    const forged = { 'x-pilothouse-dispatch': '{}' }
    const answer = await worker.call('/a%20b/c?d=e&f', { method: 'POST', body, headers: forged })
    expect(answer.status).toBe(418)
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      ...{ 'x-path': '/a%20b/c?d=e&f', 'x-method': 'POST', 'x-leaked': '' },
      'set-cookie': `a=b; Path=${new URL(worker.url()).pathname.split('/').slice(0, 3).join('/')}/`,
      'x-below': new URL(worker.url()).pathname,
    })
    expect((await answer.text()).length).toBe(body.length)
    expect((await worker.call()).headers.get('x-path')).toBe('/')
  })

  it('sees what its worker did at its top level, as in a function', async () => {
    const worker = await newWorker()
    const built = await worker.ship({
      'index.js': `const id = crypto.randomUUID()
        setInterval(() => {}, 60_000)
        const fetched = await fetch('data:text/plain,fetched').then((response) => response.text())
        await new Promise((resolve) => setTimeout(resolve, 1))
        export default { fetch: () => Response.json({ id, fetched }) }`,
    })
    expect(built).toMatchObject({ build_state: 'active', instances: { ready: 1 } })
    const [first, second] = [await (await worker.call()).json(), await (await worker.call()).json()]
    expect(first).toEqual({ id: expect.stringMatching(/^[\da-f-]{36}$/), fetched: 'fetched' })
    expect(second).toEqual(first)
  })

  it('finds the vars of wrangler.toml in its environment, overridden by the secrets', async () => {
    const project = await newProject(organization)
    await setSecrets(project, { SECRET: 'of the project' })
    const worker = await newWorker(project)
    await worker.ship({
      'wrangler.toml': `name = "a"\nmain = "index.js"\n[vars]\nPLAIN = "text"\nSECRET = "of the file"\nJSON = { a = [1, true] }`,
      'index.js': `import { env as early } from 'cloudflare:workers'
        if (early.PLAIN !== 'text') throw new Error('no vars')
        export default { fetch: (request, { PLAIN, SECRET, JSON }) => Response.json([PLAIN, SECRET, JSON, process.env.PLAIN]) }`,
    })
    expect(await (await worker.call()).json()).toEqual(['text', 'of the project', { a: [1, true] }, 'text'])
  })

  it('is answered by a Node server', async () => {
    const worker = await newWorker()
    const built = await worker.ship({
      'index.js': `import { createServer } from 'node:http'
        createServer((request, response) => response.writeHead(201).end(request.method + ' ' + request.url)).listen(process.env.PORT ?? 3000)`,
    })
    expect(built).toMatchObject({ build_state: 'active', instances: { ready: 1 } })
    const answer = await worker.call('/below?a=1', { method: 'PUT' })
    expect([answer.status, await answer.text()]).toEqual([201, 'PUT /below?a=1'])
  })

  it('gets a complete answer if it has a length and an encoding', async () => {
    const worker = await newWorker()
    await worker.ship(
      fetching(`
        const zipped = await new Response(new Blob(['x'.repeat(9000)]).stream().pipeThrough(new CompressionStream('gzip'))).arrayBuffer()
        const headers = { 'content-encoding': 'gzip', 'content-length': String(zipped.byteLength) }
        return new Response(zipped, { headers, encodeBody: 'manual' })`),
    )
    const answer = await worker.call()
    expect([answer.status, (await answer.text()).length]).toEqual([200, 9000])
  })

  it.each(['2', '9', 'abc'])('gets a complete answer if its content-length header is %s by mistake', async (length) => {
    const worker = await newWorker()
    await worker.ship(fetching(`return new Response('whole', { headers: { 'content-length': '${length}' } })`))
    const answer = await worker.call()
    expect([answer.status, await answer.text()]).toEqual([200, 'whole'])
    expect(answer.headers.get('content-length')).toBe('5')
  })

  it('may be a GET with a body', async () => {
    const worker = await newWorker()
    await worker.ship(fetching(`return new Response('body: ' + (await request.text()))`))
    const { status, body } = await exchange(String(worker.url()), { headers: { 'content-length': '2' }, body: '{}' })
    expect([status, body]).toEqual([200, 'body: '])
  })

  it('gets an error if the worker fails, and the next request is not affected', async () => {
    const worker = await newWorker()
    await worker.ship(
      fetching(`if (request.url.endsWith('/x')) throw new Error('inner words'); return new Response('well')`),
    )
    const failed = await worker.call('/x')
    expect([failed.status, await failed.json()]).toEqual([
      500,
      { code: 'WORKER_ERROR', message: expect.not.stringContaining('inner') },
    ])
    expect(await (await worker.call()).text()).toBe('well')
  })

  it('leaves a row in the log, with the printed lines', async () => {
    const worker = await newWorker()
    await worker.ship(fetching(`console.log('seen', 1); return new Response('x', { status: 201 })`))
    await worker.call('/some/where?secret=1', { method: 'PUT' })
    const [{ id } = { id: '' }] = await control
      .select()
      .from(workers)
      .where(and(eq(workers.projectRef, ref), eq(workers.name, worker.name)))
    await vi.waitFor(async () => {
      const rows = await control.select().from(invocations).where(eq(invocations.programId, id))
      expect(rows).toMatchObject([
        {
          kind: 'worker',
          projectRef: ref,
          method: 'PUT',
          status: 201,
          path: `${new URL(worker.url()).pathname.replace(`/p/${ref}`, '')}/some/where`,
          console: [{ level: 'log', message: 'seen 1' }],
        },
      ])
    }, 60_000)
  })
})

describe('a private worker', () => {
  it('leaves a row for a refused caller', async () => {
    const worker = await newWorker()
    await worker.ship(saying('inside'), { exposure: 'private' })
    expect((await worker.call()).status).toBe(401)
    await vi.waitFor(async () => {
      const rows = await control
        .select({ status: invocations.status, console: invocations.console })
        .from(invocations)
        .innerJoin(workers, eq(workers.id, invocations.programId))
        .where(and(eq(workers.projectRef, ref), eq(workers.name, worker.name)))
      expect(rows).toMatchObject([{ status: 401, console: [{ message: 'refused: UNAUTHORIZED_NO_AUTH_HEADER' }] }])
    }, 60_000)
  })

  it('answers only to the service key and the secret keys of its project', async () => {
    const worker = await newWorker()
    await worker.ship(saying('inside'), { exposure: 'private' })
    const keysOf = async (project: string) =>
      (await organization.owner.get(`/v1/projects/${project}/api-keys?reveal=true`)).body
    const keys = await keysOf(ref)
    const others = await keysOf(await newProject(organization))
    const named = (all: { name: string; type: string; api_key: string }[], name: string, type = 'legacy') =>
      all.find((key) => key.name === name && key.type === type)?.api_key ?? ''
    const statusWith = async (headers: Record<string, string>) => (await worker.call('', { headers })).status
    expect(await statusWith({})).toBe(401)
    expect(await statusWith({ authorization: 'Bearer nonsense' })).toBe(401)
    expect(await statusWith({ authorization: `Bearer ${named(others, 'service_role')}` })).toBe(401)
    expect(await statusWith({ authorization: `Bearer ${named(keys, 'anon')}` })).toBe(403)
    expect(await statusWith({ apikey: named(keys, 'service_role') })).toBe(200)
    expect(await statusWith({ authorization: 'Bearer', apikey: named(keys, 'service_role') })).toBe(200)
    expect(await statusWith({ authorization: `Bearer ${named(keys, 'service_role')}` })).toBe(200)
    expect(await statusWith({ apikey: named(keys, 'default', 'secret') })).toBe(200)
    expect(await statusWith({ apikey: named(keys, 'default', 'publishable') })).toBe(403)
    expect(await statusWith({ apikey: named(others, 'default', 'secret') })).toBe(401)
  })
})

describe('the environment', () => {
  const NAMES = fetching('return Response.json(Object.keys(process.env).sort())')

  it('has the secrets that the spec names', async () => {
    const project = await newProject(organization)
    await setSecrets(project, { ALPHA: 'a', BETA: 'b', SB_MINE: 'c' })
    const worker = await newWorker(project)
    const seen = async (secrets_scope: unknown) => {
      await worker.ship(NAMES, { secrets_scope })
      const names: string[] = await (await worker.call()).json()
      return names.filter((name) =>
        /^(ALPHA|BETA|SB_MINE|SB_REGION|SUPABASE_URL|SUPABASE_SERVICE_ROLE_KEY)$/.test(name),
      )
    }
    const ours = ['SB_REGION', 'SUPABASE_SERVICE_ROLE_KEY', 'SUPABASE_URL']
    expect(await seen('all')).toEqual(['ALPHA', 'BETA', 'SB_MINE', ...ours])
    expect(await seen(null)).toEqual(['ALPHA', 'BETA', 'SB_MINE', ...ours])
    expect(await seen('supabase')).toEqual(ours)
    expect(await seen('none')).toEqual([])
    expect(await seen([{ secret_name: 'BETA' }, { secret_name: 'SUPABASE_URL' }])).toEqual(['BETA', 'SUPABASE_URL'])
  })

  it('follows a change of the secrets: instances with the old ones are stale until they are replaced', async () => {
    const project = await newProject(organization)
    await setSecrets(project, { WORD: 'old' })
    const worker = await newWorker(project)
    expect(await worker.ship(fetching('return new Response(env.WORD)'))).toMatchObject({ secret_generation: '1' })
    expect(await (await worker.call()).text()).toBe('old')
    await setSecrets(project, { WORD: 'new' })
    expect(await worker.built()).toMatchObject({
      secret_generation: '2',
      instances: { declared: 1, live: 1, ready: 0, stale: 1 },
    })
    await vi.waitFor(async () => expect(await (await worker.call()).text()).toBe('new'), 60_000)
    expect(await worker.built()).toMatchObject({ instances: { declared: 1, live: 1, ready: 1, stale: 0 } })
  })
})

describe('the instances', () => {
  const WHO = fetching(`
    globalThis.who ??= crypto.randomUUID()
    if (request.url.endsWith('/wait')) await new Promise((resolve) => setTimeout(resolve, 1000))
    return new Response(globalThis.who)`)

  it('share the load, and are counted', async () => {
    const worker = await newWorker()
    expect(await worker.ship(WHO, { instances: 3 })).toMatchObject({
      instances: { declared: 3, live: 3, ready: 3, stale: 0 },
    })
    const busy = await Promise.all(Array.from({ length: 6 }, async () => (await worker.call('/wait')).text()))
    const counts = Object.values(Object.groupBy(busy, (answerText) => answerText)).map((same) => same?.length)
    expect(counts).toEqual([2, 2, 2])
  })

  it('have a free place again once a caller has left, before or during the answer', async () => {
    const worker = await newWorker()
    const source = fetching(`
      globalThis.who ??= crypto.randomUUID()
      if (request.url.endsWith('/hang')) await new Promise((resolve) => setTimeout(resolve, 3_600_000))
      if (request.url.endsWith('/open'))
        return new Response(new ReadableStream({ start: (begun) => begun.enqueue(new Uint8Array(1)) }))
      return new Response(globalThis.who)`)
    await worker.ship(source, { instances: 2 })
    // The runtime does not report an external caller that has left.
    const { slug } = await putFunction(
      ref,
      `const worker = Deno.env.get('SUPABASE_URL') + '/workers/v1/${worker.name}'
      const who = async () => (await fetch(worker)).text()
      Deno.serve(async () => {
        const first = await who()
        const until = async (isFirst) => {
          while (((await who()) === first) !== isFirst) await new Promise((resolve) => setTimeout(resolve, 100))
        }
        const leaving = new AbortController()
        fetch(worker + '/hang', { signal: leaving.signal }).catch(() => {})
        await until(false)
        leaving.abort()
        await until(true)
        const { body } = await fetch(worker + '/open')
        await until(false)
        await body.cancel()
        await until(true)
        return new Response('all are free')
      })`,
    )
    const response = await fetch(new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl), {
      signal: AbortSignal.timeout(30_000),
    })
    expect(await response.text()).toBe('all are free')
    const [row] = await control.select().from(workers).where(eq(workers.name, worker.name))
    await vi.waitFor(async () => {
      const rows = await invocationsOf(row?.id ?? '')
      expect(rows.find(({ path }) => path.endsWith('/hang'))).toMatchObject({
        status: 499,
        console: [{ message: 'the caller disconnected before the response' }],
      })
    }, 60_000)
  })

  extended('end once they are replaced, and once their worker is deleted', async () => {
    const project = await newProject(organization)
    const worker = await newWorker(project)
    await worker.ship(WHO)
    const answerText = async () => (await worker.call()).text()
    const turnTo = (secretsGeneration: number) =>
      control.update(projects).set({ secretsGeneration }).where(eq(projects.ref, project))
    const untilOtherThan = (known: string) =>
      vi.waitFor(async () => {
        const found = await answerText()
        expect(found).not.toBe(known)
        return found
      }, 60_000)
    const [row] = await control.select().from(workers).where(eq(workers.projectRef, project))
    const untilEnded = (times: number) =>
      vi.waitFor(
        async () => {
          await tick()
          const about = await workerLogs(row?.served?.deploymentId ?? 'none')
          expect(about.filter((line) => line.includes('worker_instance_ended'))).toHaveLength(times)
        },
        { timeout: WAIT_MS, interval: 1_000 },
      )
    const first = await answerText()
    await turnTo(100)
    const second = await untilOtherThan(first)
    await untilEnded(1)
    // The new worker has the same name as the first.
    await turnTo(0)
    expect(await untilOtherThan(second)).not.toBe(first)
    await worker.delete()
    await untilEnded(3)
  })

  it('end if they do not start', async () => {
    const project = await newProject(organization)
    const worker = await newWorker(project)
    await worker.ship({
      'index.js': `if (process.env.FAIL) throw new Error('not today')
        export default { fetch: () => new Response('well') }`,
    })
    await setSecrets(project, { FAIL: 'yes' })
    await vi.waitFor(async () => expect((await worker.call()).status).toBe(503), 60_000)
    const [row] = await control.select().from(workers).where(eq(workers.projectRef, project))
    await vi.waitFor(
      async () => {
        await tick()
        const about = await workerLogs(row?.served?.deploymentId ?? 'none')
        expect(about.filter((line) => line.includes('worker_instance_ended'))).not.toEqual([])
      },
      { timeout: WAIT_MS, interval: 1_000 },
    )
  })

  it('are replaced without a request that fails or waits, and finish their requests', async () => {
    const worker = await newWorker()
    const versionOf = (text: string) =>
      fetching(
        `if (request.url.endsWith('/wait')) await new Promise((resolve) => setTimeout(resolve, 3000)); return new Response('${text}')`,
      )
    await worker.ship(versionOf('old'), { instances: 2 })
    const uploadId = await worker.upload(packed(versionOf('new')))
    let switched = false
    const answers: string[] = []
    const slow = worker.call('/wait')
    const load = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (!switched) {
          const answer = await worker.call()
          answers.push(`${answer.status} ${await answer.text()}`)
        }
      }),
    )
    await worker.deploy({ instances: 2 }, uploadId)
    const counted = { declared: 2, live: 2, ready: 2, stale: 0 }
    await vi.waitFor(async () => {
      const { build_state, instances } = (await worker.get()).body.data.attributes
      expect(instances).toMatchObject({ declared: 2, ready: 2 })
      expect(build_state).toBe('active')
    }, 60_000)
    await vi.waitFor(async () => expect(await (await worker.call()).text()).toBe('new'), 60_000)
    switched = true
    await load
    expect(new Set(answers)).toEqual(new Set(['200 old', '200 new']))
    expect(await (await slow).text()).toBe('old')
    await vi.waitFor(async () => expect(await worker.built()).toMatchObject({ instances: counted }), {
      timeout: WAIT_MS,
    })
  })
})
