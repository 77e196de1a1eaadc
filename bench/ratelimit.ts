import { get, type Reply } from './client.ts'
import type { Environment } from './environment.ts'
import { measure, type Side } from './measure.ts'
import type { Report } from './report.ts'
import { inTurn } from './seed.ts'

const LOADS = [
  { concurrency: 1, rounds: 8, requestsPerBlock: 500 },
  { concurrency: 16, rounds: 8, requestsPerBlock: 2000 },
]
const REQUESTS = LOADS.reduce((sum, { rounds, requestsPerBlock }) => sum + (rounds + 1) * requestsPerBlock, 0)
const REQUESTS_PER_CALLER = 100
const DECISIONS = 1000

/** Measures what the limiter adds to an empty route, and how many decisions it takes in a second. */
export async function ratelimit({ port }: Environment, report: Report): Promise<void> {
  const callers = Array.from({ length: Math.ceil(REQUESTS / REQUESTS_PER_CALLER) }, (_, n) => `caller-${n}`)
  const nextCaller = inTurn(callers)
  const sides = [
    { name: 'without', next: () => get(`/bench/unlimited?caller=${nextCaller()}`) },
    { name: 'many callers', next: () => get(`/bench/limited?caller=${nextCaller()}`) },
    {
      name: 'one caller',
      next: () => get('/bench/limited?caller=hot'),
      accepts: ({ status }: Reply) => status === 200 || status === 429,
    },
  ] as const satisfies readonly Side[]

  for (const load of LOADS) {
    const { without, 'many callers': spread, 'one caller': hot } = await measure({ port, ...load }, sides)
    report.title(
      `rate limit on a route that does nothing else, concurrency ${load.concurrency} (${load.rounds} × ${load.requestsPerBlock} requests each, interleaved)`,
    )
    report.table({ 'without limiter': without, 'limiter, many callers': spread, 'limiter, one hot caller': hot })
    report.line(`added to the p50: ${added(spread, without)} for many callers, ${added(hot, without)} for a hot one`)
    report.ratio({ name: 'many callers / without', of: spread, to: without })
    report.ratio({ name: 'one hot caller / without', of: hot, to: without })
  }
  await decisions({ port, report })
}

const added = (a: { p50Ms: number }, b: { p50Ms: number }) => `${(a.p50Ms - b.p50Ms).toFixed(2)} ms`

async function decisions({ port, report }: { port: number; report: Report }): Promise<void> {
  const request = (callers: 'one' | 'many') => get(`/bench/decisions?callers=${callers}&count=${DECISIONS}`)
  const side = <Name extends 'one' | 'many'>(name: Name) => ({
    name,
    next: () => request(name),
  })
  const { one, many } = await measure({ port, concurrency: 1, rounds: 5, requestsPerBlock: 10 }, [
    side('one'),
    side('many'),
  ])
  const rate = ({ requestsPerSecond }: typeof one) => Math.round(requestsPerSecond * DECISIONS).toLocaleString('en')
  report.title(`decisions alone, ${DECISIONS} at a time`)
  report.line(`one hot caller: ${rate(one)} a second`)
  report.line(`${DECISIONS} callers: ${rate(many)} a second`)
}
