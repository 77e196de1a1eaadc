import { fork } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import pg from 'pg'
import { bearer } from './client.ts'
import type { Environment } from './environment.ts'
import { createProject, ownerUrl, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens } from './seed.ts'
import { median } from './storage/interleaved.ts'

const ATTACKERS = 16
const SOCKETS = 420
const RESULTS = 30
const RESULT_BYTES = 15 * 1024 * 1024
/** With fewer complete results, the load is smaller than the report says. */
const COMPLETE_MIN = RESULTS / 2
/** The median of this many measurements counts: the first segments of 17 new projects are archived during one of them. */
const ROUNDS = 3
const RATIO_MAX = 1.5
/** Limit for the ratio to the effect of the same results on the neighbour without Pilothouse in between. */
const PLAIN_RATIO_MAX = 2
/** Sessions of the plain client: as many as the host uses for one project. */
const READERS = 4
const RESULT = `select repeat('x', ${RESULT_BYTES}) as x`

/** Measures how much the load of one project slows down the SQL of another on the same host. */
export async function neighbours(environment: Environment, report: Report): Promise<void> {
  const { port, control, gatewayPort, sockets } = environment
  const organization = await seedOrganization(control, 'neighbours', 0)
  const tokens = await seedTokens(control, await seedOwners(control, [organization], ATTACKERS), ATTACKERS)
  const nextToken = inTurn(tokens)
  const fields = { organization_slug: organization.slug, db_pass: PASSWORD }
  const make = (name: string) => createProject(port, nextToken(), { name, ...fields })
  const { href: url } = ownerUrl(gatewayPort, await make('victim'))
  const victim = new Worker(new URL('neighbour-latency.ts', import.meta.url), { workerData: { url } })
  const refs: string[] = []
  for (let n = 0; n < ATTACKERS; n++) refs.push(await make(`attacker ${n}`))
  const [attacker = ''] = refs

  /** Reads a result. Returns whether it was complete: the API refuses those that wait for memory too long. */
  const readResult = async (): Promise<boolean> => {
    const reply = await fetch(`http://127.0.0.1:${port}/v1/projects/${attacker}/database/query`, {
      method: 'POST',
      headers: { ...bearer(nextToken()), 'content-type': 'application/json' },
      body: JSON.stringify({ query: RESULT }),
    })
    return reply.ok && (await reply.arrayBuffer()).byteLength > RESULT_BYTES
  }
  const session = async (ref: string, text: string) => {
    const client = new pg.Client({ connectionString: ownerUrl(gatewayPort, ref).href })
    client.on('error', () => {})
    await client.connect()
    await client.query(text)
    return client
  }
  const hold = (text: string) => refs.map((ref) => session(ref, text))
  const attacks: Record<string, () => Promise<() => unknown>> = {
    [`${SOCKETS} silent connections`]: async () => {
      const sockets = Array.from({ length: SOCKETS }, () => connect(gatewayPort, '127.0.0.1').on('error', () => {}))
      return () => sockets.map((socket) => socket.destroy())
    },
    'a session and a lock in each of 16 projects': async () => {
      const clients = await Promise.all(
        hold('begin; create table held (n int); lock table held; select pg_advisory_lock(1)'),
      )
      return () => Promise.all(clients.map((client) => client.end()))
    },
    'failed logins one after another': async () => {
      let isOver = false
      const wrong = ownerUrl(gatewayPort, attacker)
      wrong.password = 'wrong'
      const loop = (async () => {
        while (!isOver) await new pg.Client({ connectionString: wrong.href }).connect().catch(() => {})
      })()
      return () => {
        isOver = true
        return loop
      }
    },
  }
  const measureDuring = async (name: string, begin: () => Promise<() => unknown>) => {
    const quiet: number[] = []
    const loaded: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      quiet.push(await measureP99(victim))
      const end = await begin()
      loaded.push(await measureP99(victim))
      await end()
    }
    const before = median(quiet)
    const during = median(loaded)
    report.line(`${name}: p99 ${before.toFixed(1)} ms before, ${during.toFixed(1)} ms during`)
    return { before, during }
  }
  for (const [name, begin] of Object.entries(attacks)) {
    const { before, during } = await measureDuring(name, begin)
    report.atMost('p99 during / before', rounded(during / before), RATIO_MAX)
  }
  const plain = await measureDuring('results of 15 MB, read by a plain client from its own server', async () =>
    readPlainly(join(sockets, attacker)),
  )
  const results = await measureDuring(`${RESULTS} results of 15 MB through the API`, async () => {
    const all = Promise.allSettled(Array.from({ length: RESULTS }, readResult))
    return async () => {
      const complete = (await all).filter((each) => each.status === 'fulfilled' && each.value).length
      report.atLeast('complete results', complete, COMPLETE_MIN)
    }
  })
  report.line(`p99 during / before: plain ${rounded(plain.during / plain.before)}`)
  report.atMost('p99 during / before', rounded(results.during / results.before), RATIO_MAX)
  report.atMost('p99 during, API / plain', rounded(results.during / plain.during), PLAIN_RATIO_MAX)
  await victim.terminate()
}

const rounded = (value: number) => Number(value.toFixed(2))

/** Reads results with a plain client until the returned function is called. */
function readPlainly(socket: string): () => Promise<unknown> {
  const reader = fork(new URL('plain-reader.ts', import.meta.url), [socket, RESULT, String(READERS)])
  const ended = once(reader, 'exit')
  return () => {
    reader.kill()
    return ended
  }
}

/** The victim's p99 in milliseconds. */
async function measureP99(victim: Worker): Promise<number> {
  victim.postMessage('measure')
  const [p99] = (await once(victim, 'message')) as [number]
  return p99
}
