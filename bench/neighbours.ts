import { once } from 'node:events'
import { connect } from 'node:net'
import { Worker } from 'node:worker_threads'
import pg from 'pg'
import { bearer } from './client.ts'
import type { Environment } from './environment.ts'
import { createProject, ownerUrl, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens } from './seed.ts'

const ATTACKERS = 16
const SOCKETS = 420
const RESULTS = 30
const RESULT_BYTES = 15 * 1024 * 1024
const RATIO_MAX = 1.5

/** What a project's SQL feels of what another does to the host that both are on. */
export async function neighbours({ port, control, gatewayPort }: Environment, report: Report): Promise<void> {
  const organization = await seedOrganization(control, 'neighbours', 0)
  const tokens = await seedTokens(control, await seedOwners(control, [organization], ATTACKERS), ATTACKERS)
  const nextToken = inTurn(tokens)
  const fields = { organization_slug: organization.slug, db_pass: PASSWORD }
  const make = (name: string) => createProject(port, nextToken(), { name, ...fields })
  const { href: url } = ownerUrl(gatewayPort, await make('victim'))
  const victim = new Worker(new URL('neighbour.ts', import.meta.url), { workerData: { url } })
  const refs: string[] = []
  for (let n = 0; n < ATTACKERS; n++) refs.push(await make(`attacker ${n}`))
  const [attacker = ''] = refs

  const query = (text: string) =>
    fetch(`http://127.0.0.1:${port}/v1/projects/${attacker}/database/query`, {
      method: 'POST',
      headers: { ...bearer(nextToken()), 'content-type': 'application/json' },
      body: JSON.stringify({ query: text }),
    }).then((reply) => reply.arrayBuffer())
  const session = async (ref: string, text: string) => {
    const client = new pg.Client({ connectionString: ownerUrl(gatewayPort, ref).href })
    client.on('error', () => {})
    await client.connect()
    await client.query(text).catch(() => {})
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
    'a failed login after another': async () => {
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
    [`${RESULTS} results of 15 MB`]: async () => {
      const all = Promise.all(Array.from({ length: RESULTS }, () => query(`select repeat('x', ${RESULT_BYTES}) as x`)))
      return () => all
    },
  }
  for (const [name, begin] of Object.entries(attacks)) {
    const before = await feel(victim)
    const end = await begin()
    const during = await feel(victim)
    await end()
    report.line(`${name}: p99 ${before.toFixed(1)} ms before, ${during.toFixed(1)} ms during`)
    report.atMost('p99 during / before', Number((during / before).toFixed(2)), RATIO_MAX)
  }
  await victim.terminate()
}

/** p99 in milliseconds. */
async function feel(victim: Worker): Promise<number> {
  victim.postMessage('measure')
  const [p99] = (await once(victim, 'message')) as [number]
  return p99
}
