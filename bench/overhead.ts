import { projects } from '../src/model/tables/index.ts'
import { bearer, get, withConnections } from './client.ts'
import type { Environment, LogLine } from './environment.ts'
import { measure, type Side } from './measure.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens, settleTables } from './seed.ts'

const RATIO_MAX = 1.5
const ROUND_TRIPS_MAX = 2
const LOADS = [
  { concurrency: 1, rounds: 40, requestsPerBlock: 50 },
  { concurrency: 16, rounds: 30, requestsPerBlock: 160 },
]
const REQUESTS = LOADS.reduce((sum, { rounds, requestsPerBlock }) => sum + (rounds + 1) * requestsPerBlock, 0)
/** Requests for each project in the whole run, below the limit of 120 a minute. */
const REQUESTS_PER_PROJECT = 100

/** Compares `GET /v1/projects/{ref}` with only its statement, sent from the same Worker. */
export async function overhead({ port, control, logLines }: Environment, report: Report): Promise<void> {
  const organization = await seedOrganization(control, 'overhead', Math.ceil((2 * REQUESTS) / REQUESTS_PER_PROJECT))
  const [userId = ''] = await seedOwners(control, [organization], 1)
  const [token = '', ...unseen] = await seedTokens(control, [userId], REQUESTS + 1)
  await settleTables(control)
  const seeded = await control.select({ ref: projects.ref }).from(projects)
  const nextRef = inTurn(seeded.map(({ ref }) => ref))
  const nextToken = inTurn(unseen)
  const project = (from: string) => get(`/v1/projects/${nextRef()}`, bearer(from))

  const sides = [
    { name: 'bare', next: () => get(`/bench/projects/${nextRef()}?user=${userId}`) },
    { name: 'statement', next: () => get(`/bench/statement/${nextRef()}?user=${userId}`) },
    { name: 'everything on', next: () => project(token) },
    { name: 'caller not seen lately', next: () => project(nextToken()) },
    { name: 'static', next: () => get('/bench/static') },
  ] as const satisfies readonly Side[]

  await checkSameProject(port, get(`/bench/projects/${seeded[0]?.ref}?user=${userId}`), project(token))
  for (const load of LOADS) {
    const figures = await measure({ port, ...load }, sides)
    const { bare, statement, 'everything on': full, 'caller not seen lately': unseen, static: fixed } = figures
    report.title(
      `overhead of GET /v1/projects/{ref}, concurrency ${load.concurrency} (${load.rounds} × ${load.requestsPerBlock} requests each, interleaved)`,
    )
    report.table({
      'bare route: the query, nothing else': bare,
      'its statement through the driver': statement,
      'everything on': full,
      '… with a token not seen for 10 s': unseen,
      'static route (client and HTTP)': fixed,
    })
    report.ratio({ name: 'everything on / bare', of: full, to: bare, bound: RATIO_MAX })
    report.ratio({ name: 'everything on / statement', of: full, to: statement })
    report.ratio({ name: 'token not seen / bare', of: unseen, to: bare })
  }
  const lines = await logLines(2 * REQUESTS, ({ route }: LogLine) => route === 'v1-get-project')
  report.title('round trips to the database in a request')
  const counts = Map.groupBy(lines, ({ queries = 0 }) => queries)
  for (const [queries, { length }] of [...counts].sort()) report.line(`${queries}: ${length} requests`)
  report.atMost('most in any request', Math.max(...counts.keys()), ROUND_TRIPS_MAX)
}

/** Checks that both sides answer with the same project. */
async function checkSameProject(port: number, bare: Buffer, full: Buffer): Promise<void> {
  await withConnections(port, 1, async ([connection]) => {
    const found = [await connection?.send(bare), await connection?.send(full)].map((reply) => {
      if (reply?.status !== 200) throw new Error(`not answered: ${reply?.body}`)
      const { ref, name, status } = JSON.parse(reply.body)
      return JSON.stringify({ ref, name, status })
    })
    if (found[0] !== found[1]) throw new Error(`not the same project: ${found.join(' and ')}`)
  })
}
