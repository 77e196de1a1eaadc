import pg from 'pg'
import { bearer, type Connection, send, withConnections } from './client.ts'
import type { Environment } from './environment.ts'
import { percentile } from './measure.ts'
import { createProject, ownerUrl, PASSWORD } from './project.ts'
import { startPsql } from './psql.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens, settleTables } from './seed.ts'

const ROUNDS = 20
const PER_BLOCK = 40
/** Requests of each caller in the whole run, below the limit of 120 a minute for a project. */
const PER_CALLER = 100

const QUERIES = [
  { name: 'select 1', text: 'select 1 as one', rows: 1, addedMsMax: 4 },
  {
    name: '1,000 rows',
    text: 'select n, md5(n::text) as text from generate_series(1, 1000) n',
    rows: 1_000,
    rowsPerSecondMin: 200_000,
  },
]

/** Compares SQL through the API with SQL through the driver and psql, which keep a connection through the gateway. */
export async function sql({ port, control, gatewayPort }: Environment, report: Report): Promise<void> {
  const organization = await seedOrganization(control, 'sql', 0)
  const requests = QUERIES.length * (ROUNDS + 1) * PER_BLOCK
  const userIds = await seedOwners(control, [organization], Math.ceil(requests / PER_CALLER) + 1)
  const tokens = await seedTokens(control, userIds, userIds.length)
  const [first = ''] = tokens
  const fields = { name: 'sql', organization_slug: organization.slug, db_pass: PASSWORD }
  const ref = await createProject(port, first, fields)
  await settleTables(control)
  const nextToken = inTurn(tokens)
  const url = ownerUrl(gatewayPort, ref)
  const driver = new pg.Client({ connectionString: url.href })
  await driver.connect()
  const psql = await startPsql(url)
  if (!psql) report.line('psql is not on the PATH, and is left out')

  const viaApi = async (connection: Connection, query: string): Promise<void> => {
    const headers = { ...bearer(nextToken()), 'content-type': 'application/json' }
    const body = Buffer.from(JSON.stringify({ query }))
    const { status, body: reply } = await connection.send(
      send('POST', `/v1/projects/${ref}/database/query`, body, headers),
    )
    if (status !== 201) throw new Error(`answered ${status}: ${reply}`)
  }

  await withConnections(port, 1, async ([connection]) => {
    if (!connection) return
    for (const { name, text, ...bounds } of QUERIES) {
      const sides: Side[] = [
        { name: 'the API', ms: [], run: () => viaApi(connection, text) },
        { name: 'the driver', ms: [], run: () => driver.query(text) },
        ...(psql ? [{ name: 'psql', ms: [], run: () => psql.query(text) }] : []),
      ]
      for (let round = 0; round <= ROUNDS; round++) {
        for (const { ms, run } of sides) {
          const block = await timed(run)
          if (round > 0) ms.push(...block)
        }
      }
      report.title(`SQL through the API: ${name}, one at a time (${ROUNDS} × ${PER_BLOCK} each, interleaved)`)
      reportSides(report, sides, bounds)
    }
  })
  await Promise.all([driver.end(), psql?.end()])
}

interface Side {
  name: string
  ms: number[]
  run(): Promise<unknown>
}

interface Bounds {
  rows: number
  /** Limit for the difference to the driver, between medians. */
  addedMsMax?: number
  rowsPerSecondMin?: number
}

function reportSides(report: Report, sides: readonly Side[], { rows, addedMsMax, rowsPerSecondMin }: Bounds): void {
  const medians = sides.map(({ ms }) => percentile(ms, 0.5))
  sides.forEach(({ name, ms }, place) => {
    const p50 = medians[place] ?? 0
    const p95 = percentile(ms, 0.95)
    report.line(
      `${name}: p50 ${p50.toFixed(2)} ms, p95 ${p95.toFixed(2)} ms, ${Math.round((rows / p50) * 1000)} rows/s`,
    )
  })
  const [api = 0, ...others] = medians
  const added = others.map((p50, place) => `${(api - p50).toFixed(2)} ms over ${sides[place + 1]?.name}`)
  report.line(`added: p50 ${added.join(', ')}`)
  const overDriver = Number((api - (others[0] ?? 0)).toFixed(2))
  if (addedMsMax !== undefined) report.atMost('added over the driver, p50 ms', overDriver, addedMsMax)
  if (rowsPerSecondMin !== undefined) report.atLeast('rows/s', Math.round((rows / api) * 1000), rowsPerSecondMin)
}

async function timed(work: () => Promise<unknown>): Promise<number[]> {
  const ms: number[] = []
  for (let n = 0; n < PER_BLOCK; n++) {
    const startedAt = performance.now()
    await work()
    ms.push(performance.now() - startedAt)
  }
  return ms
}
