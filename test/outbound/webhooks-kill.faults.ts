import { randomUUID } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Machine, newMachine } from '../support/machine.ts'
import { answer, silence } from '../support/wire/answers.ts'
import { type Customer, newCustomer } from '../support/wire/customer.ts'
import { type Installation, openInstallation, until } from '../support/wire/installation.ts'
import { type Killable, revive, startKillable } from '../support/wire/killable.ts'
import { type Script, type Scripted, startScripted } from '../support/wire/scripted.ts'

/** More than the longest time to a retry that lost its alarm: its own 12 s, 5 s of grace and 10 s until the next sweep. */
const QUIET_MS = 40_000

let machine: Machine
let receiver: Scripted
let running: Killable
let installation: Installation
beforeAll(async () => {
  machine = await newMachine({ WEBHOOK_LOOPBACK: 'on' })
  receiver = await startScripted()
  running = await startKillable(machine)
  await running.ready()
  installation = openInstallation(machine)
})
afterAll(async () => {
  await installation?.close()
  await running?.kill()
  receiver.close()
  await machine.dispose()
})

async function subscribe(customer: Customer, script: Script) {
  const path = `/${randomUUID()}`
  return { path, id: await customer.subscribe(receiver.play(path, script)) }
}

const bodiesAt = (path: string) => receiver.receivedAt(path).map(({ body }) => body)
const idsAt = (path: string) => receiver.receivedAt(path).map(({ headers }) => String(headers['webhook-id']))

/** Waits until every delivery has been made, retries included. */
const untilQuiet = (endpoints: { id: string }[]) =>
  until('nothing is pending', QUIET_MS, async () => {
    const query = `select id from webhook_deliveries where status = 'pending' and endpoint_id = any($1)`
    return (await installation.rows(query, [endpoints.map(({ id }) => id)])).length === 0 ? true : undefined
  })

describe('when all processes die at once', () => {
  it('the attempts that were under way are made again, and so are the planned retries', async () => {
    const customer = await newCustomer(installation)
    const firstThen200 =
      (first: Script): Script =>
      (exchange) =>
        (exchange.count === 1 ? first : answer(200))(exchange)
    let toAnswer: ServerResponse | undefined
    const open = await subscribe(customer, firstThen200(silence))
    const down = await subscribe(customer, firstThen200(answer(500)))
    const answered = await subscribe(
      customer,
      firstThen200(({ response }) => {
        toAnswer = response
      }),
    )
    await customer.createProject()
    await until('two attempts are open', 10_000, () => (bodiesAt(open.path).length && toAnswer ? true : undefined))
    const planned = await until('one is to be retried', 10_000, async () => (await customer.deliveries(down.id))[1])
    expect(planned.status).toBe('pending')

    toAnswer?.end()
    await running.kill()
    await expect(installation.call('GET', '/health')).rejects.toThrow()
    running = await revive(machine, installation)
    await untilQuiet([open, down, answered])

    const logOf = async ({ id }: { id: string }) =>
      (await customer.deliveries(id)).map(({ status, response_code }) => [status, response_code])
    expect(await logOf(open)).toEqual([['success', 200]])
    expect(await logOf(answered)).toEqual([['success', 200]])
    expect(await logOf(down)).toEqual([
      ['failure', 500],
      ['success', 200],
    ])
    const [first, again, ...more] = receiver.receivedAt(down.path)
    expect(more).toEqual([])
    expect(again?.body).toBe(first?.body)
    expect(again?.at).toBeGreaterThanOrEqual(Date.parse(planned.attempt_timestamp))
    expect(bodiesAt(open.path)).toHaveLength(2)
    // The receiver answered; only the dead process knows whether it recorded that.
    expect([1, 2]).toContain(bodiesAt(answered.path).length)
    for (const { path } of [open, answered]) expect(new Set(bodiesAt(path)).size).toBe(1)
  })

  it('all committed deliveries arrive and no others, although the messages are lost, twice', async () => {
    const customer = await newCustomer(installation)
    const endpoints = []
    for (let count = 0; count < 12; count++) endpoints.push(await subscribe(customer, answer(200)))
    const paths = endpoints.map(({ path }) => path)
    const acknowledged: string[] = []
    const sending = [
      customer.createProject(),
      ...endpoints.slice(0, 10).map(async ({ id }) => void acknowledged.push(await customer.sendTest(id))),
    ]
    await Promise.any(sending)
    await running.kill()
    await Promise.allSettled(sending)
    const before = paths.flatMap(idsAt).length

    running = await revive(machine, installation)
    await until('deliveries go on', QUIET_MS, () => (paths.flatMap(idsAt).length > before ? true : undefined))
    await running.kill()
    running = await revive(machine, installation)
    await untilQuiet(endpoints)

    const committed = []
    for (const { id, path } of endpoints) {
      const log = await customer.deliveries(id)
      committed.push(...log.map(({ event_id }) => event_id))
      expect(log.map(({ status }) => status)).toEqual(log.map(() => 'success'))
      expect(new Set(idsAt(path))).toEqual(new Set(log.map(({ event_id }) => event_id)))
    }
    expect(committed.length).toBeGreaterThan(0)
    expect(committed).toEqual(expect.arrayContaining(acknowledged))
    // Each crash may cost one more request of what was under way.
    for (const id of committed) {
      expect(paths.flatMap(idsAt).filter((received) => received === id).length).toBeLessThanOrEqual(3)
    }
  })
})
