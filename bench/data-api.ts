import { join } from 'node:path'
import { signClaims } from '../src/services/gateway/credentials.ts'
import { bearer, type Connection, get, type Request as Sent, send, withConnections } from './client.ts'
import { CASES, type Case, SCHEMA } from './data-api/cases.ts'
import { openCompiler } from './data-api/compiler.ts'
import { peakMemory, schemaLoad } from './data-api/limits.ts'
import { startLite } from './data-api/lite.ts'
import type { Environment } from './environment.ts'
import { ownerUrl } from './project.ts'
import type { Report } from './report.ts'
import { inTurn } from './seed.ts'
import { connectClient, createServedProject } from './served-project.ts'
import { measureInterleaved, median, type NextJob, type Rates } from './storage/interleaved.ts'

const CONCURRENCY = 16
const ROUNDS = 15
const WARM_UPS = 5
const ROWS_MAX = 20_000

const SHARE_MIN: Record<string, number> = { floor: 0.8, least: 0.8, lite: 1 }
const COMPILE_MS_MAX = 0.2

interface Lane {
  api: Connection
  lite: Connection
}

type Compiler = ReturnType<typeof openCompiler>

interface Bench {
  ref: string
  port: number
  /** Headers of the service role. */
  headers: Record<string, string>
  compiler: Compiler
  lanes: Lane[]
  hasLite: boolean
}

/**
 * Compares the Data API with the floor, a Worker that sends the same statements and returns their body; with the least that any
 * implementation adds to it; and with `@supabase/lite` if `SUPABASE_LITE` names the folder in which it is installed.
 */
export async function dataApi(environment: Environment, report: Report): Promise<void> {
  const { port, gatewayPort, sockets, pids } = environment
  const { ref, token, jwtSecret, open } = await createServedProject(environment, 'data-api')
  const owner = await connectClient({ connectionString: ownerUrl(gatewayPort, ref).href })
  await owner.query(SCHEMA)
  const config = await fetch(`http://127.0.0.1:${port}/v1/projects/${ref}/postgrest`, {
    method: 'PATCH',
    headers: { ...bearer(token), 'content-type': 'application/json' },
    body: JSON.stringify({ max_rows: ROWS_MAX }),
  })
  if (!config.ok) throw new Error(`the settings were not changed: ${await config.text()}`)
  const socket = join(sockets, ref)
  const folder = process.env.SUPABASE_LITE
  const lite = folder ? await startLite({ folder, socket, jwtSecret, maxRows: ROWS_MAX }) : undefined
  if (!lite) report.line('@supabase/lite is left out: SUPABASE_LITE is not set')
  const project = await open()
  const client = await connectClient({ host: socket, user: 'authenticator', database: 'postgres' })
  const compiler = openCompiler(project, client)
  const service = await signClaims({ jwtSecret }, { role: 'service_role' }, 3600, new Date())
  const headers = { apikey: service, ...bearer(service) }
  try {
    const address = { url: `http://127.0.0.1:${port}/p/${ref}/rest/v1`, headers }
    await storeReplyHeaders(port, address)
    await withConnections(port, CONCURRENCY, (apis) =>
      withConnections(lite?.port ?? port, CONCURRENCY, async (lites) => {
        const lanes = apis.map((api, n) => ({ api, lite: lites[n] ?? api }))
        const bench = { ref, port, headers, compiler, lanes, hasLite: lite !== undefined }
        for (const each of CASES) await compare(bench, each, report)
      }),
    )
    if (pids.api !== undefined) await peakMemory({ pid: pids.api, ...address }, report)
    await schemaLoad(owner, address, report)
  } finally {
    await lite?.stop()
    await Promise.all([client.end(), owner.end()])
  }
}

async function compare(bench: Bench, of: Case, report: Report): Promise<void> {
  const { name, jobs, request, requests: count = CONCURRENCY, compileMsMax = COMPILE_MS_MAX } = of
  const { ref, port, headers, compiler, lanes, hasLite } = bench
  const numbers = Array.from({ length: CONCURRENCY }, (_, n) => n)
  const sentTo = (base: string) => Array.from({ length: count }, (_, n) => rawRequest(base, headers, request(n)))
  const requests: Record<string, Sent[]> = {
    server: sentTo(`/p/${ref}/rest/v1`),
    ...(await storeBatches(bench, name, numbers.map(request))),
    ...(hasLite && { lite: sentTo('/rest/v1') }),
  }
  await checkSameReplies(bench, requests)
  const sides = Object.fromEntries(
    Object.entries(requests).map(([side, each]) => [side, jobsOf(connectionOf(side), each)]),
  )
  const rates = await measureInterleaved({ lanes, rounds: ROUNDS, warmUps: WARM_UPS, jobs }, sides)
  report.title(`${name}, concurrency ${CONCURRENCY} (${ROUNDS} × ${jobs} requests each at most, in turns)`)
  const base = `http://127.0.0.1:${port}/rest/v1`
  const next = inTurn(numbers)
  const compileMs = await compiler.medianMs(() => fetchRequest(base, headers, request(next())))
  const server = rates.server?.perSecond ?? []
  for (const [side, { perSecond, p50Ms, p99Ms }] of Object.entries<Rates>(rates)) {
    const share = median(server.map((each, round) => each / (perSecond[round] ?? Number.NaN)))
    const text = `${(NAMES[side] ?? side).padEnd(18)}${median(perSecond).toFixed(0).padStart(6)}/s`
    report.line(`${text}  p50 ${p50Ms.toFixed(1).padStart(6)} ms  p99 ${p99Ms.toFixed(1).padStart(6)} ms`)
    const shareMin = SHARE_MIN[side]
    if (shareMin !== undefined) report.atLeast(`share of ${NAMES[side]}`, round(share), shareMin)
  }
  report.atMost('compile time, p50 ms', Number(compileMs.toFixed(3)), compileMsMax)
}

const NAMES: Record<string, string> = {
  server: 'Data API',
  floor: 'the floor',
  least: 'the least',
  lite: '@supabase/lite',
}
const connectionOf = (side: string): keyof Lane => (side === 'lite' ? 'lite' : 'api')
const round = (value: number) => Number(value.toFixed(2))

type Described = ReturnType<Case['request']>

const headersOf = (headers: Record<string, string>, { prefer, body }: Described) => ({
  ...headers,
  ...(prefer && { prefer }),
  ...(body !== undefined && { 'content-type': 'application/json' }),
})

function rawRequest(base: string, headers: Record<string, string>, of: Described): Sent {
  const own = headersOf(headers, of)
  if (of.method === 'GET') return get(base + of.path, own)
  return send('POST', base + of.path, Buffer.from(JSON.stringify(of.body)), own)
}

const fetchRequest = (base: string, headers: Record<string, string>, of: Described) =>
  new Request(base + of.path, {
    method: of.method,
    headers: headersOf(headers, of),
    ...(of.body !== undefined && { body: JSON.stringify(of.body) }),
  })

/** Stores the statements of each request in the Worker, and returns requests with the same headers and body that run them. */
async function storeBatches({ port, headers, compiler }: Bench, name: string, all: Described[]) {
  const floor: Sent[] = []
  const least: Sent[] = []
  for (const [n, of] of all.entries()) {
    const batch = await compiler.batchOf(fetchRequest(`http://127.0.0.1:${port}/rest/v1`, headers, of))
    const key = `${encodeURIComponent(name)}-${n}`
    await store(port, `batches/${key}`, batch)
    floor.push(rawRequest(`/bench/batches/${key}`, headers, { ...of, path: '' }))
    const query = of.path.slice(of.path.indexOf('?') + 1)
    least.push(rawRequest(`/bench/least/${key}${query === of.path ? '' : `?${query}`}`, headers, { ...of, path: '' }))
  }
  return { floor, least }
}

async function store(port: number, name: string, value: unknown): Promise<void> {
  const url = `http://127.0.0.1:${port}/bench/${name}`
  const stored = await fetch(url, { method: 'PUT', body: JSON.stringify(value) })
  if (!stored.ok) throw new Error(`${name} was not stored: ${await stored.text()}`)
}

const OWN_HEADERS = new Set(['content-length', 'connection', 'date', 'keep-alive', 'transfer-encoding'])

/** Stores the headers of a reply of the Data API; those of other requests have about the same length. */
async function storeReplyHeaders(port: number, address: { url: string; headers: Record<string, string> }) {
  const reply = await fetch(`${address.url}/books?select=*&id=eq.1`, { headers: address.headers })
  await reply.arrayBuffer()
  await store(port, 'reply-headers', Object.fromEntries([...reply.headers].filter(([name]) => !OWN_HEADERS.has(name))))
}

/** Compares the replies of all sides to the first request. A side without a body is left out. */
async function checkSameReplies({ lanes: [lane] }: Bench, requests: Record<string, Sent[]>): Promise<void> {
  const bodies: string[] = []
  for (const [side, [request]] of Object.entries(requests)) {
    if (!lane || !request) continue
    const reply = await lane[connectionOf(side)].send(request, COMPARED_BYTES_MAX)
    if (reply.bodyBytes === 0) continue
    bodies.push(JSON.stringify(JSON.parse(reply.body)))
  }
  const [first] = bodies
  if (bodies.some((body) => body !== first))
    throw new Error(`the replies differ: ${bodies.map((body) => body.slice(0, 1_000)).join('\n')}`)
}

const COMPARED_BYTES_MAX = 4 * 1024 * 1024

function jobsOf(side: keyof Lane, requests: readonly Sent[]): NextJob<Lane> {
  const next = inTurn(requests)
  return () => {
    const request = next()
    return async (lane) => {
      const reply = await lane[side].send(request)
      if (reply.status > 299) throw new Error(`${side} answered ${reply.status}: ${reply.body.slice(0, 500)}`)
    }
  }
}
