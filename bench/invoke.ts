import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { eq, sql } from 'drizzle-orm'
import { convertV4MiniflareOptions, Miniflare } from 'miniflare'
import { freePort } from '../dev/ports.ts'
import type { Image } from '../src/builder/program-image.ts'
import { functionDeployments, functions, projects } from '../src/model/tables/index.ts'
import { imageKey } from '../src/services/runtime/program-keys.ts'
import { get, withConnections } from './client.ts'
import type { Environment } from './environment.ts'
import { type Figures, measure, percentile } from './measure.ts'
import { createProject, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { seedOrganization, seedOwners, seedTokens } from './seed.ts'

/** Smallest share of the requests a second that workerd alone answers. */
const SHARE_MIN = 0.6
const FUNCTIONS = 1_000
const COLD_CALLS = 200
const LOADS = [
  { concurrency: 1, rounds: 20, requestsPerBlock: 100 },
  { concurrency: 16, rounds: 20, requestsPerBlock: 800 },
]
const PROGRAM = `export default { fetch: () => new Response('hello') }`
/** A Worker that only loads the program: the minimal cost of a loaded program. */
const LOADER = `const code = () => ({ compatibilityDate: '2026-11-01', compatibilityFlags: ['nodejs_compat'],
    mainModule: 'function.js', modules: { 'function.js': ${JSON.stringify(PROGRAM)} } })
  export default { fetch: (request, { LOADER }) => LOADER.get('hello', code).getEntrypoint().fetch(request) }`
/** A Worker that only passes the call on to the loader's process: the minimal cost of a separate process. */
const FORWARDER = `export default { fetch: (request, { NEXT }) => NEXT.fetch(request) }`

/** Compares calls of a function through Pilothouse with the same code run by workerd alone. */
export async function invoke(environment: Environment, report: Report): Promise<void> {
  const { port } = environment
  const ref = await newProject(environment)
  const slugs = await deployAll(environment, ref)
  const call = (slug = '') => get(`/p/${ref}/functions/v1/${slug}`)

  await reportColdStarts(port, slugs.slice(0, COLD_CALLS).map(call), report)
  const all = slugs.map(call)
  await callEachOnce(port, all)
  const atRandom = () => all[Math.floor(Math.random() * all.length)] as Buffer
  await withWorker({ path: 'function.js', contents: PROGRAM }, async (bare) => {
    await withWorker({ path: 'loader.js', contents: LOADER }, async (loader) => {
      const next = `127.0.0.1:${loader}`
      await withWorker({ path: 'forwarder.js', contents: FORWARDER, next }, async (forwarder) => {
        for (const load of LOADS) {
          const figures = await measure({ port, ...load }, [
            { name: 'bare', port: bare, next: () => get('/') },
            { name: 'loader', port: loader, next: () => get('/') },
            { name: 'forwarder', port: forwarder, next: () => get('/') },
            { name: 'function', next: () => call(slugs[0]) },
            { name: 'at random', next: atRandom },
          ])
          report.title(`calls of a function that says hello, concurrency ${load.concurrency}`)
          report.table({
            'the same code, workerd alone': figures.bare,
            'the same code, its loader alone': figures.loader,
            'its loader behind a process': figures.forwarder,
            'through Pilothouse': figures.function,
            [`through Pilothouse, ${FUNCTIONS} functions`]: figures['at random'],
          })
          const share = (one: Figures, other: Figures) =>
            Math.round((one.requestsPerSecond / other.requestsPerSecond) * 100) / 100
          report.atLeast('req/s, Pilothouse / workerd alone', share(figures.function, figures.bare), SHARE_MIN)
          report.line(`req/s, Pilothouse / its loader alone: ${share(figures.function, figures.loader)}`)
          report.line(`req/s, Pilothouse / its loader behind a process: ${share(figures.function, figures.forwarder)}`)
          report.line(
            `req/s, its loader behind a process / its loader alone: ${share(figures.forwarder, figures.loader)}`,
          )
        }
      })
    })
  })
  report.line(
    `the Worker's memory with ${FUNCTIONS} functions: ${Math.round((await environment.workerRssBytes()) / 1024 ** 2)} MiB`,
  )
}

async function newProject({ port, control }: Environment): Promise<string> {
  const organization = await seedOrganization(control, 'invoke', 0)
  const userIds = await seedOwners(control, [organization], 1)
  const [token = ''] = await seedTokens(control, userIds, 1)
  return createProject(port, token, { name: 'invoke', organization_slug: organization.slug, db_pass: PASSWORD })
}

/** Creates the rows and images of deployed functions. */
async function deployAll({ control, s3 }: Environment, projectRef: string): Promise<string[]> {
  const { endpoint, bucket: Bucket, ...credentials } = s3
  const client = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
  const slugs = Array.from({ length: FUNCTIONS }, (_, n) => `hello-${n}`)
  const at = new Date()
  const deployments = await control
    .insert(functionDeployments)
    .values(slugs.map((slug) => ({ projectRef, slug, sha256: '', entrypoint: 'index.ts', createdAt: at })))
    .returning()
  const image: Image = { main: 'function.js', modules: { 'function.js': { js: PROGRAM } }, files: {} }
  for (const { id } of deployments) {
    await client.send(new PutObjectCommand({ Bucket, Key: imageKey(projectRef, id), Body: JSON.stringify(image) }))
  }
  const common = { projectRef, status: 'ACTIVE', version: 1, verifyJwt: false, createdAt: at, updatedAt: at } as const
  await control
    .insert(functions)
    .values(deployments.map(({ id, slug }) => ({ ...common, slug, name: slug, deploymentId: id })))
  await control.update(projects).set({ status: 'ACTIVE_HEALTHY' }).where(eq(projects.ref, projectRef))
  await control.execute(sql`vacuum analyze functions, function_deployments, projects`)
  return slugs
}

async function reportColdStarts(port: number, calls: readonly Buffer[], report: Report): Promise<void> {
  const latenciesMs = await callEachOnce(port, calls)
  const [p50, p95] = [percentile(latenciesMs, 0.5), percentile(latenciesMs, 0.95)]
  report.title(`first call of a function, one after the other (${calls.length})`)
  report.line(`p50 ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms`)
}

async function callEachOnce(port: number, calls: readonly Buffer[]): Promise<number[]> {
  const latenciesMs: number[] = []
  await withConnections(port, 1, async ([connection]) => {
    for (const request of calls) {
      const sentAt = performance.now()
      const reply = await connection?.send(request)
      latenciesMs.push(performance.now() - sentAt)
      if (reply?.body !== 'hello') throw new Error(`answered ${reply?.status}: ${reply?.body}`)
    }
  })
  return latenciesMs
}

async function withWorker(
  { path, contents, next }: { path: string; contents: string; next?: string },
  work: (port: number) => Promise<void>,
): Promise<void> {
  const port = await freePort(0, 'api')
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      ...{
        host: '127.0.0.1',
        port: 0,
        cf: false,
        compatibilityDate: '2026-11-01',
        compatibilityFlags: ['nodejs_compat'],
      },
      modules: [{ type: 'ESModule', path, contents }],
      workerLoaders: { LOADER: {} },
      ...(next && { serviceBindings: { NEXT: { external: { address: next, http: {} } } } }),
      unsafeDirectSockets: [{ host: '127.0.0.1', port }],
    }),
  )
  try {
    await miniflare.ready
    await work(port)
  } finally {
    await miniflare.dispose()
  }
}
