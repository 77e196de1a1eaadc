import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { createRandom, type Random } from '../random.ts'
import type { Fleet, FleetHost } from './installation.ts'
import { createOwner, type Operation, SETTLE_MS_MAX } from './owner.ts'
import { judge, untilSettled } from './verdict.ts'

const VICTIMS = ['daemon', 'API', 'server', 'control database', 'control sessions', 'all'] as const
type Victim = (typeof VICTIMS)[number]

interface Play {
  seed: number
  kills: number
  owners: number
  /** The operations of each owner, in this order; by default all of them. */
  operations?: readonly Operation[]
  victims?: readonly Victim[]
  pauseMsMax?: number
  onNote?(text: string): void
}

export interface Outcome {
  problems: string[]
  settledMs: number
}

/**
 * Lets owners work on their projects while one process after another is killed; then all must come to rest in a
 * correct state.
 */
export async function playFleet(fleet: Fleet, play: Play): Promise<Outcome> {
  const { seed, kills, operations, onNote = () => {} } = play
  const moments = createRandom(seed)
  const { slug } = (await fleet.call('POST', '/v1/organizations', { name: `Fleet ${seed}` })).body as { slug: string }
  let isOver = false
  const owners = Array.from({ length: play.owners }, (_, i) =>
    createOwner(fleet, { organization: slug, random: createRandom(seed + 1 + i), onNote }),
  )
  const working = owners.map((owner) =>
    owner
      .work(operations, () => isOver)
      .then(
        () => [],
        (error: Error) => [`an owner gave up: ${error.message}`],
      ),
  )
  for (let kill = 1; kill <= kills; kill++) {
    await delay(moments.whole(0, play.pauseMsMax ?? 3_000))
    const victim = moments.pick(play.victims ?? VICTIMS)
    await end(fleet, victim, moments)
    onNote(`kill ${kill}: ${victim}`)
    await Promise.all([fleet.untilHostsAnswer(), fleet.untilApiAnswers()])
  }
  isOver = true
  const killedAt = Date.now()
  const unsettled = await untilSettled(fleet, SETTLE_MS_MAX)
  const settledMs = Date.now() - killedAt
  const gaveUp = (await Promise.all(working)).flat()
  const late = await untilSettled(fleet, SETTLE_MS_MAX)
  const failures = owners.flatMap((owner) => owner.failures)
  const problems = await judge(
    fleet,
    owners.flatMap(({ ledgers }) => ledgers),
  )
  return { problems: [...unsettled, ...late, ...gaveUp, ...failures, ...problems], settledMs }
}

/** Kills a process and starts it again, as a supervisor does. */
async function end({ hosts, api, rows }: Fleet, victim: Victim, moments: Random): Promise<void> {
  if (victim === 'server' || victim === 'control database' || victim === 'all') {
    const servers = (await Promise.all(hosts.map(postmasters))).flat()
    const control = servers.filter(({ name }) => name === 'control')
    const others = servers.filter(({ name }) => name !== 'control')
    const one = others.length > 0 ? [moments.pick(others)] : control
    for (const { pid } of victim === 'all' ? servers : victim === 'server' ? one : control) killServer(pid)
  }
  if (victim === 'control sessions') {
    const others = `select pg_terminate_backend(pid) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()`
    await rows(others).catch(() => {})
  }
  const daemons = victim === 'all' ? hosts : victim === 'daemon' ? [moments.pick(hosts)] : []
  for (const { daemon } of daemons) {
    await daemon.end()
    daemon.start()
  }
  if (victim === 'API' || victim === 'all') {
    await api.end()
    api.start()
  }
}

async function postmasters({ folder }: FleetHost): Promise<{ name: string; pid: number }[]> {
  const names = (await readdir(join(folder, 'instances')).catch(() => [])).sort()
  const files = await Promise.all(
    names.map(async (name) => {
      const file = join(folder, 'instances', name, 'data', 'postmaster.pid')
      return { name, pid: Number((await readFile(file, 'utf8').catch(() => '')).split('\n')[0]) }
    }),
  )
  return files.filter(({ pid }) => pid > 0)
}

function killServer(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // The process has ended by itself.
  }
}
