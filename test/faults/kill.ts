import { parseArgs } from 'node:util'
import { newMachine } from '../support/machine.ts'
import { type Customer, newCustomer } from '../support/wire/customer.ts'
import { type Installation, openInstallation, until } from '../support/wire/installation.ts'
import { revive, startKillable } from '../support/wire/killable.ts'
import { type Answered, judge, type Promised } from '../support/wire/ledger.ts'
import { startScripted } from '../support/wire/scripted.ts'
import { createRandom } from './random.ts'

/**
 * Kills `npm start` again and again while events are published and delivered, and then counts: committed deliveries
 * that never arrived (lost), arrived ones that were never committed (phantom), and log entries that the receiver
 * contradicts (untrue).
 */
const HELP = 'node test/faults/kill.ts [--rounds N] [--seed S]   by default 20 rounds and a new seed'
const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '20' }, seed: { type: 'string' }, help: { type: 'boolean' } },
})
if (values.help) {
  console.log(HELP)
  process.exit(0)
}
const rounds = Number(values.rounds)
const seed = Number(values.seed ?? Date.now() % 1_000_000)
if (!Number.isInteger(rounds) || rounds < 1 || !Number.isInteger(seed))
  throw new Error(`--rounds and --seed must be whole numbers\n${HELP}`)

const CUSTOMERS = 5
/** Test events of a customer in each round: the rate limit allows this many, and each kill resets its counters. */
const TESTS_EACH = 10
const TIMEOUT_S = 4
const KILL_AFTER_MS_MAX = 2500
const SETTLE_MS_MAX = 180_000

/** A separate generator, so that a seed gives the same times of the kills, whatever order the requests have. */
const moments = createRandom(seed)
const answers = createRandom(seed + 1)
const machine = await newMachine({ WEBHOOK_LOOPBACK: 'on', WEBHOOK_TIMEOUT_SECONDS: String(TIMEOUT_S) })
const receiver = await startScripted()
let running = await startKillable(machine)
let failed = false
try {
  await running.ready()
  const installation = openInstallation(machine)
  console.log(`${rounds} rounds, seed ${seed}`)

  const answered: Answered[] = []
  const promised: Promised[] = []
  const customers = await Promise.all(Array.from({ length: CUSTOMERS }, () => newCustomer(installation)))
  const endpoints = new Map<Customer, string[]>()
  for (const customer of customers) endpoints.set(customer, await subscribeAll(customer, answered))

  for (let round = 1; round <= rounds; round++) {
    const killAfterMs = moments.whole(0, KILL_AFTER_MS_MAX)
    const publishing = customers.map((customer, index) =>
      publish(customer, { ids: endpoints.get(customer) ?? [], withProject: index === round % CUSTOMERS }, promised),
    )
    await new Promise((resolve) => setTimeout(resolve, killAfterMs))
    await running.kill()
    await Promise.allSettled(publishing)
    console.log(
      `round ${round}: killed after ${killAfterMs} ms, ${promised.length} acknowledged, ${answered.length} requests received`,
    )
    running = await revive(machine, installation)
  }
  await settle(installation)
  const verdict = await judge(installation, { answered, promised })
  await installation.close()
  console.log(JSON.stringify({ seed, rounds, ...verdict.counts }))
  for (const line of verdict.problems.slice(0, 50)) console.error(line)
  failed = verdict.problems.length > 0
} finally {
  await running.kill()
  receiver.close()
  await machine.dispose()
}
process.exit(failed ? 1 : 0)

/** Subscribes receivers that are quick, slow, failing half of the time and now and then silent. */
async function subscribeAll(customer: Customer, answered: Answered[]): Promise<string[]> {
  const kinds = {
    quick: () => ({ status: 200, afterMs: 0 }),
    slow: () => ({ status: 200, afterMs: answers.whole(50, 550) }),
    flaky: () => ({ status: answers.chance(0.5) ? 500 : 200, afterMs: answers.whole(0, 20) }),
    silent: () => (answers.chance(0.3) ? undefined : { status: 200, afterMs: 0 }),
  }
  const ids: string[] = []
  for (const [kind, choose] of Object.entries(kinds)) {
    const url = receiver.play(`/${customer.slug}/${kind}`, ({ request, response }) => {
      const choice = choose()
      const { 'webhook-id': id } = request.headers
      answered.push({ messageId: String(id), status: choice?.status })
      if (choice) setTimeout(() => response.writeHead(choice.status).end(), choice.afterMs)
    })
    ids.push(await customer.subscribe(url, { event_types: [{ type: '*' }] }))
  }
  return ids
}

interface Publication {
  ids: string[]
  withProject: boolean
}

/** Publishes until the installation is killed, and adds the acknowledged events to `promised`. */
async function publish(customer: Customer, { ids, withProject }: Publication, promised: Promised[]): Promise<void> {
  const createProject = async () => promised.push({ projectRef: await customer.createProject(), copies: ids.length })
  const sendTests = async () => {
    for (let count = 0; count < TESTS_EACH; count++) {
      promised.push({ messageId: await customer.sendTest(ids[count % ids.length] ?? '') })
    }
  }
  await Promise.allSettled([sendTests(), ...(withProject ? [createProject()] : [])])
}

/**
 * Brings every retry forward until none is left, or leaves the rest for the verdict; leases stay, because their
 * senders live.
 */
async function settle({ rows }: Installation): Promise<void> {
  await until('nothing is pending', SETTLE_MS_MAX, async () => {
    await rows(
      `update webhook_deliveries set next_at = now() - interval '5 seconds' where status = 'pending' and next_at > now()`,
    )
    return (await rows(`select 1 from webhook_deliveries where status = 'pending' limit 1`)).length === 0
      ? true
      : undefined
  }).catch((error: Error) => console.error(error.message))
}
