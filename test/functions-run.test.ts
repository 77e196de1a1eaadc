import { beforeAll, describe, expect, it, vi } from 'vitest'
import { baseUrl, newOrganization } from './api.ts'
import { invocationsOf, putFunction, putSecret } from './functions.ts'
import { WAIT } from './machine.ts'
import { newStorage, type TestStorage } from './storage.ts'

let project: TestStorage
const urlOf = (slug: string, rest = '') => new URL(`/p/${project.ref}/functions/v1/${slug}${rest}`, baseUrl)

/** Deploys a program of this body and calls it. */
async function answerOf(program: string, { rest = '', ...init }: RequestInit & { rest?: string } = {}) {
  const { slug } = await putFunction(project.ref, program)
  return fetch(urlOf(slug, rest), init)
}

const jsonOf = async (program: string, init?: RequestInit) => (await answerOf(program, init)).json()
const serve = (body: string) => `Deno.serve(async (request, info) => { ${body} })`
const lazily = (body: string, exported = '') => `export const start = async () => { ${body}; return { ${exported} } }`

beforeAll(async () => {
  project = await newStorage(await newOrganization())
})

describe('a function', () => {
  it.each([
    ['Deno.serve(handler)', `Deno.serve(() => new Response('here'))`],
    ['Deno.serve(options, handler)', `Deno.serve({ port: 8000, onListen() {} }, () => new Response('here'))`],
    ['Deno.serve({ handler })', `Deno.serve({ handler: () => new Response('here') })`],
    ['export default { fetch }', `export default { fetch: () => new Response('here') }`],
    ['lazily, Deno.serve', lazily(`Deno.serve(() => new Response('here'))`)],
    ['lazily, export default', lazily('', `default: { fetch: () => new Response('here') }`)],
    ['a program that waits for its server', lazily(`await Deno.serve(() => new Response('here')).finished`)],
  ])('answers: %s', async (_, program) => {
    const response = await answerOf(program)
    expect([response.status, await response.text()]).toEqual([200, 'here'])
  })

  it('sees the request as its slug begins the path', async () => {
    const { slug } = await putFunction(
      project.ref,
      serve(`const { pathname, search } = new URL(request.url)
        return Response.json([request.method, pathname, search, request.headers.get('x-own'), await request.text()])`),
    )
    const init = { method: 'PATCH', body: 'body', headers: { 'x-own': 'yes', 'x-test-clock': String(Date.now()) } }
    const response = await fetch(urlOf(slug, '/a%20b/c?d=e'), init)
    expect(await response.json()).toEqual(['PATCH', `/${slug}/a%20b/c`, '?d=e', 'yes', 'body'])
  })
})
