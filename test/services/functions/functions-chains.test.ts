import { beforeAll, describe, expect, it, vi } from 'vitest'
import { baseUrl, newOrganization } from '../../support/api.ts'
import { invocationsOf, putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'
import { workerOf } from '../../support/workers.ts'

const HOPS_MAX = 32

let project: TestStorage
beforeAll(async () => {
  project = await newStorage(await newOrganization())
})

const inProject = (path: string, ref = project.ref) => new URL(`/p/${ref}${path}`, baseUrl)
const called = (slug: string, rest = '') => inProject(`/functions/v1/${slug}${rest}`)

/** Returns a program that passes on the answer of another function. */
const calling = (slug: string, rest = '') => `Deno.serve(async (request) => {
  const response = await fetch(Deno.env.get('SUPABASE_URL') + '/functions/v1/${slug}${rest}' + new URL(request.url).search)
  return new Response(response.body, { status: response.status, headers: response.headers })
})`

async function answerOf(url: URL) {
  const response = await fetch(url)
  const text = await response.text()
  return { status: response.status, code: response.headers.get('sb-error-code'), text }
}

const REFUSED = { status: 508, code: 'LOOP_DETECTED', text: expect.stringContaining('call each other in a loop') }

const wasCalled = (id: string, times: number) =>
  vi.waitFor(async () => expect(await invocationsOf(id)).toHaveLength(times), WAIT)

describe('an endless chain of calls is stopped', () => {
  it('if a function calls itself', async () => {
    const slug = `f-${crypto.randomUUID()}`
    const { id } = await putFunction(project.ref, calling(slug), { slug })
    expect(await answerOf(called(slug))).toMatchObject(REFUSED)
    // The last call was not run.
    await wasCalled(id, HOPS_MAX + 2)
    const printed = (await invocationsOf(id)).flatMap(({ console }) => console)
    expect(printed).toMatchObject([{ message: expect.stringContaining('loop') }])
    expect(await answerOf(called(slug))).toMatchObject(REFUSED)
  })

  it('if it has a function and a worker, of two projects', async () => {
    const other = await newStorage(project.organization)
    const slug = `f-${crypto.randomUUID()}`
    const worker = workerOf(other.organization.owner, other.ref)
    const source = `export default { fetch: () => fetch('https://${project.ref}.projects.example.com/functions/v1/${slug}') }`
    expect(await worker.ship({ 'index.js': source })).toMatchObject({ build_state: 'active' })
    const { id } = await putFunction(
      project.ref,
      `Deno.serve(() => fetch('https://${other.ref}.projects.example.com/workers/v1/${worker.name}/'))`,
      { slug },
    )
    expect(await answerOf(called(slug))).toMatchObject(REFUSED)
    await wasCalled(id, HOPS_MAX / 2 + 1)
    expect(await answerOf(new URL(worker.url()))).toMatchObject(REFUSED)
  })

  it('if no call waits for the answer', async () => {
    const slug = `f-${crypto.randomUUID()}`
    const { id } = await putFunction(
      project.ref,
      `Deno.serve(() => {
        EdgeRuntime.waitUntil(fetch(Deno.env.get('SUPABASE_URL') + '/functions/v1/${slug}').then(async (response) => {
          if (response.status === 508) console.log(await response.text())
        }))
        return new Response('begun')
      })`,
      { slug },
    )
    expect(await answerOf(called(slug))).toMatchObject({ status: 200 })
    await wasCalled(id, HOPS_MAX + 2)
    await vi.waitFor(async () => expect(JSON.stringify(await invocationsOf(id))).toContain('LOOP_DETECTED'), WAIT)
  })

  it('if the calls do not use fetch', async () => {
    const slug = `f-${crypto.randomUUID()}`
    await putFunction(
      project.ref,
      `import { get } from 'node:https'
      Deno.serve(() => new Promise((resolve, reject) => {
        get(Deno.env.get('SUPABASE_URL') + '/functions/v1/${slug}', (message) => {
          const chunks = []
          message.on('data', (chunk) => chunks.push(chunk))
          message.on('end', () => resolve(new Response(Buffer.concat(chunks), { status: message.statusCode,
            headers: { 'sb-error-code': message.headers['sb-error-code'] } })))
        }).on('error', reject)
      }))`,
      { slug },
    )
    expect(await answerOf(called(slug))).toMatchObject(REFUSED)
  })

  it('if each call makes many', async () => {
    const slug = `f-${crypto.randomUUID()}`
    const { id } = await putFunction(
      project.ref,
      `Deno.serve(async (request) => {
        const left = Number(new URL(request.url).searchParams.get('left') ?? 12)
        if (left === 0) return new Response('the end')
        const own = Deno.env.get('SUPABASE_URL') + '/functions/v1/${slug}?left=' + (left - 1)
        for (let n = 0; n < 3; n++) {
          const response = await fetch(own)
          if (response.status !== 200) return response
        }
        return new Response('all done')
      })`,
      { slug },
    )
    expect(await answerOf(called(slug))).toMatchObject(REFUSED)
    // The minute may end while the test runs.
    expect((await invocationsOf(id)).length).toBeLessThan(2_100)
  })
})

describe('a finite chain of calls is completed', () => {
  it('for any number of simultaneous callers', async () => {
    const slug = `f-${crypto.randomUUID()}`
    await putFunction(
      project.ref,
      `Deno.serve(async (request) => {
        const left = Number(new URL(request.url).searchParams.get('left') ?? 6)
        if (left > 0) return fetch(Deno.env.get('SUPABASE_URL') + '/functions/v1/${slug}?left=' + (left - 1))
        await new Promise((resolve) => setTimeout(resolve, 20))
        return new Response('done')
      })`,
      { slug },
    )
    const callers = Array.from({ length: 8 }, async () => {
      for (let n = 0; n < 8; n++) expect(await answerOf(called(slug))).toMatchObject({ status: 200, text: 'done' })
    })
    await Promise.all(callers)
  })

  it('without revealing how calls are counted', async () => {
    const echo = `f-${crypto.randomUUID()}`
    await putFunction(project.ref, `Deno.serve((request) => Response.json(Object.fromEntries(request.headers)))`, {
      slug: echo,
    })
    const caller = `f-${crypto.randomUUID()}`
    await putFunction(project.ref, calling(echo), { slug: caller })
    expect(JSON.stringify(await (await fetch(called(caller))).json())).not.toContain('pilothouse')
  })
})
