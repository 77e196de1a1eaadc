import { expect, it, vi } from 'vitest'
import { baseUrl, newOrganization } from '../../support/api.ts'
import { invocationsOf, putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newStorage } from '../../support/storage.ts'
import { workerOf } from '../../support/workers.ts'

const LATE_MS = 150_000
const LATE = { status: 504, code: 'IDLE_TIMEOUT' }

async function lateAnswer(url: string | URL) {
  const startedAt = performance.now()
  const response = await fetch(url)
  expect(performance.now() - startedAt).toBeGreaterThan(LATE_MS - 1_000)
  return { status: response.status, code: response.headers.get('sb-error-code') }
}

it('a program that starts no answer in 150 seconds is stopped, and the log says so', async () => {
  const organization = await newOrganization()
  const { ref } = await newStorage(organization)
  const { slug, id } = await putFunction(
    ref,
    `Deno.serve((request) => (request.url.includes('never') ? new Promise(() => setInterval(() => {}, 1000)) : new Response('x')))`,
  )
  const worker = workerOf(organization.owner, ref)
  await worker.ship({
    'index.js': `export default { fetch: ({ url }) => (url.includes('never') ? new Promise(() => setInterval(() => {}, 1000)) : new Response('x')) }`,
  })
  const url = new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl)
  const late = Promise.all([lateAnswer(`${url}/never`), lateAnswer(worker.url('/never'))])
  expect(await late).toEqual([LATE, LATE])
  await vi.waitFor(async () => {
    const [row] = await invocationsOf(id)
    expect(row).toMatchObject({ status: 504, console: [{ level: 'error', message: 'no response began within 150 s' }] })
    expect(row?.ms).toBeGreaterThanOrEqual(LATE_MS)
  }, WAIT)
  for (const again of [url, worker.url()]) expect((await fetch(again)).status).toBe(200)
})
