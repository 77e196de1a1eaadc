import { setTimeout as delay } from 'node:timers/promises'
import { bearer } from './client.ts'
import type { Environment } from './environment.ts'
import { percentile } from './measure.ts'
import { createProject, deployFunction, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { seedOrganization, seedOwners, seedTokens } from './seed.ts'

const MINUTES = Number(process.env.STEADY_MINUTES ?? 60)
const REQUESTS_PER_SECOND = 30
/** Share of the samples that is judged: before that, a process may still grow to what it needs. */
const MEASURED_SHARE = 2 / 3
const SAMPLE_INTERVAL_MS = 5_000
/** Limit for the growth of a process from the first half of the measured time to the second. */
const GROWTH_MAX = 1.1
const NOISE_MIB = 16
const MIB = 1024 ** 2

/** Several users, because the API's rate limits are for each user. */
const USERS = 40
const FUNCTION = `Deno.serve(async (request) => Response.json({ read: (await request.text()).length, at: Deno.env.get('STEADY') }))`

/** Measures the memory of each process over time, under a load like that of an installation in use. */
export async function steady(environment: Environment, report: Report): Promise<void> {
  const { port } = environment
  const origin = `http://127.0.0.1:${port}`
  const load = await prepare(environment, origin)
  const samples = new Map<string, number[]>()
  const latenciesMs: number[] = []
  const failures = new Map<string, number>()
  const startedAt = performance.now()
  const isOver = () => performance.now() - startedAt >= MINUTES * 60_000

  async function call(n: number): Promise<void> {
    const at = performance.now()
    const { path, init } = load(n)
    const outcome = await fetch(origin + path, init)
      .then(async (response) => {
        await response.arrayBuffer()
        return response.ok ? undefined : String(response.status)
      })
      .catch(String)
    latenciesMs.push(performance.now() - at)
    if (outcome === undefined) return
    const failure = `${init.method ?? 'GET'} ${path.replace(/[a-z]{20}|\d+/g, '…')}: ${outcome}`
    failures.set(failure, (failures.get(failure) ?? 0) + 1)
  }

  async function sample(): Promise<void> {
    while (!isOver()) {
      for (const [name, bytes] of Object.entries(await environment.processRssBytes())) {
        samples.set(name, [...(samples.get(name) ?? []), bytes / MIB])
      }
      await delay(SAMPLE_INTERVAL_MS)
    }
  }

  const sampling = sample()
  const calls = new Set<Promise<void>>()
  for (let n = 0; !isOver(); n += 1) {
    const calling = call(n).finally(() => calls.delete(calling))
    calls.add(calling)
    await delay(startedAt + ((n + 1) * 1_000) / REQUESTS_PER_SECOND - performance.now())
  }
  await Promise.all([sampling, ...calls])

  report.title(`steady load of ${REQUESTS_PER_SECOND} requests a second for ${MINUTES} minutes`)
  const [p50, p99] = [percentile(latenciesMs, 0.5), percentile(latenciesMs, 0.99)]
  report.line(`${latenciesMs.length} requests, p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`)
  for (const [failure, count] of failures) report.line(`${count}× ${failure}`)
  for (const [name, all] of samples) {
    report.line(
      `${name.padEnd(10)} MiB ${tenths(all)
        .map((mib) => mib.toFixed(0).padStart(5))
        .join('')}`,
    )
  }
  report.atMost(
    'failed requests',
    [...failures.values()].reduce((sum, count) => sum + count, 0),
    0,
  )
  for (const [name, all] of samples) {
    const measured = all.slice(Math.floor(all.length * (1 - MEASURED_SHARE)))
    const half = Math.floor(measured.length / 2)
    const [before, after] = [mean(measured.slice(0, half)), mean(measured.slice(half))]
    report.atMost(`${name}: MiB at the end`, Math.round(after), Math.round(before * GROWTH_MAX + NOISE_MIB))
  }
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length

/** The mean of each tenth of the time. */
const tenths = (all: readonly number[]): number[] =>
  Array.from({ length: 10 }, (_, n) => all.slice((n * all.length) / 10, ((n + 1) * all.length) / 10))
    .filter((part) => part.length > 0)
    .map(mean)

interface Call {
  path: string
  init: RequestInit
}

/** Creates a project with a function and a bucket. Returns a function that makes the n-th request. */
async function prepare({ port, control }: Environment, origin: string): Promise<(n: number) => Call> {
  const organization = await seedOrganization(control, 'steady', 0)
  const tokens = await seedTokens(control, await seedOwners(control, [organization], USERS), USERS)
  const [first = ''] = tokens
  const fields = { organization_slug: organization.slug, db_pass: PASSWORD }
  const ref = await createProject(port, first, { ...fields, name: 'steady' })
  const asUser = (n: number) => ({ ...bearer(tokens[n % tokens.length] ?? ''), 'content-type': 'application/json' })
  const ask = async (path: string, init: RequestInit) => {
    const response = await fetch(origin + path, init)
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`)
    return response
  }
  await deployFunction(port, first, { ref, slug: 'steady', code: FUNCTION })
  const keys = await ask(`/v1/projects/${ref}/api-keys?reveal=true`, { headers: bearer(first) })
  const named = (await keys.json()) as { name: string; api_key: string }[]
  const service = bearer(named.find(({ name }) => name === 'service_role')?.api_key ?? '')
  const storage = `/p/${ref}/storage/v1`
  const post = (body: unknown, headers: Record<string, string>): RequestInit => ({
    ...{ method: 'POST', body: JSON.stringify(body) },
    headers: { ...headers, 'content-type': 'application/json' },
  })
  await ask(`${storage}/bucket`, post({ name: 'steady' }, service))
  const object = (n: number) => `${storage}/object/steady/${n % 500}`
  const put = (n: number): Call => ({
    path: object(n),
    init: { method: 'POST', headers: { ...service, 'x-upsert': 'true' }, body: 'x'.repeat(20_000 + (n % 7) * 10_000) },
  })
  for (let n = 0; n < 500; n += 1) await ask(put(n).path, put(n).init)
  const query = 'select n, md5(n::text) from generate_series(1, 100) as n'
  const calls: readonly ((n: number) => Call)[] = [
    (n) => ({ path: '/v1/projects', init: { headers: asUser(n) } }),
    (n) => ({ path: `/p/${ref}/functions/v1/steady`, init: { method: 'POST', body: 'x'.repeat(n % 5_000) } }),
    (n) => ({ path: `/v1/projects/${ref}/database/query`, init: post({ query }, asUser(n)) }),
    put,
    (n) => ({ path: object(n * 7), init: { headers: service } }),
    (n) => ({ path: `/v1/projects/${ref}`, init: { headers: asUser(n) } }),
    (n) => ({ path: `/p/${ref}/functions/v1/steady?n=${n}`, init: {} }),
    () => ({ path: `${storage}/object/list/steady`, init: post({ prefix: '', limit: 50 }, service) }),
  ]
  // Changing a secret restarts every function.
  const secret = (n: number): Call => ({
    path: `/v1/projects/${ref}/secrets`,
    init: post([{ name: 'STEADY', value: String(n) }], asUser(n)),
  })
  const every = 5 * REQUESTS_PER_SECOND
  return (n) => (n % every === 0 ? secret(n) : (calls[n % calls.length] ?? put)(n))
}
