// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are pieces of source
export interface Mutant {
  name: string
  file: string
  find: string
  replace: string
  /**
   * The tests that must fail: the simulation, the stress with parallel connections, or only the tests of the sender.
   */
  by: 'simulation' | 'stress' | 'sender'
}

const STORE = 'src/outbound/webhooks/delivery-store.ts'
const SENDER = 'src/outbound/webhooks/delivery-loop.ts'
const ROUND = 'src/outbound/webhooks/delivery-round.ts'
const ADMISSION = 'src/outbound/webhooks/delivery-permits.ts'
const OUTCOME = 'src/outbound/webhooks/attempt-outcome.ts'
const PUBLISH = 'src/outbound/events/publish.ts'
const MUTATE = 'src/management/kernel/mutate.ts'
const WAKE = 'src/outbound/webhooks/wake-senders.ts'

const simulated = (name: string, file: string, find: string, replace: string): Mutant => ({
  name,
  file,
  find,
  replace,
  by: 'simulation',
})
const stressed = (name: string, file: string, find: string, replace: string): Mutant => ({
  ...simulated(name, file, find, replace),
  by: 'stress',
})
const unsimulated = (name: string, file: string, find: string, replace: string): Mutant => ({
  ...simulated(name, file, find, replace),
  by: 'sender',
})

/** Each mutant removes the guard that its name describes. */
export const MUTANTS: readonly Mutant[] = [
  simulated(
    'a claim respects the lease',
    STORE,
    '(d.lease_until is null or d.lease_until <= ${now} or d.claim = ${claim})',
    'true',
  ),
  simulated(
    'a claim takes only pending deliveries',
    STORE,
    "const free = sql`d.status = 'pending' and",
    'const free = sql`',
  ),
  simulated(
    'a claim waits for the time of the next attempt',
    STORE,
    "d.status = 'pending' and d.next_at <= ${now}",
    "d.status = 'pending'",
  ),
  simulated(
    'a lease ends',
    STORE,
    '(d.lease_until is null or d.lease_until <= ${now} or d.claim = ${claim})',
    '(d.lease_until is null or d.claim = ${claim})',
  ),
  unsimulated('a result requires the current claim', STORE, 'd.claim = r.claim and', ''),
  simulated('a result is recorded once', STORE, "d.claim = r.claim and d.status = 'pending'", 'true'),
  simulated(
    'a failed attempt plans the next one',
    STORE,
    'where status = \'failure\' and "delayMs" is not null',
    'where false',
  ),
  simulated(
    'the next attempt keeps the id',
    STORE,
    'select message_id, event_id, endpoint_id, trigger, attempt + 1',
    'select uuidv7(), event_id, endpoint_id, trigger, attempt + 1',
  ),
  simulated('attempts are counted', STORE, 'trigger, attempt + 1, case', 'trigger, attempt, case'),
  unsimulated(
    'a disabled endpoint gets no next attempt',
    STORE,
    "case when enabled then 'pending' else 'skipped' end",
    "'pending'",
  ),
  simulated(
    'a claimed delivery of a disabled endpoint is skipped',
    SENDER,
    "if (!delivery.enabled) return { kind: 'skipped', errorCode: 'endpoint_disabled' }",
    '',
  ),
  simulated('a delivery that was not started in time is released', ROUND, 'clock() - claimedAt > STALE_MS', 'false'),
  simulated(
    '410 disables the endpoint',
    SENDER,
    'disabling !== undefined && (await disableBecause(disabling))',
    'false',
  ),
  simulated(
    'an attempt that failed on our side does not count',
    OUTCOME,
    "status: 'pending', delayMs: LOCAL_DELAY_MS",
    "status: 'failure', errorCode: 'internal'",
  ),
  simulated(
    'the sender wakes itself for the next attempt',
    SENDER,
    'if (nextMs !== null) planWake(clock() + nextMs)',
    '',
  ),
  simulated(
    'a sender wakes again after a database error',
    SENDER,
    'await wakeAt(clock() + pauseMs).catch(() => {})',
    '',
  ),
  simulated(
    'the breaker opens',
    'src/outbound/webhooks/breaker.ts',
    'if (failures >= FAILURES) openUntilMs = now + OPEN_MS',
    '',
  ),
  simulated(
    'the fifth attempt is the last',
    'src/outbound/webhooks/retry-schedule.ts',
    'if (base === undefined) return undefined',
    'if (base === undefined) return 1000',
  ),
  simulated(
    'a next attempt is not early',
    'src/outbound/webhooks/retry-schedule.ts',
    'Math.max(jittered, requested)',
    'Math.max(jittered / 2, requested)',
  ),
  simulated(
    'only 2xx is a success',
    'src/outbound/webhooks/response-capture.ts',
    'return code >= 200 && code <= 299',
    'return code >= 200 && code <= 399',
  ),
  simulated(
    'the sweeper finds overdue deliveries',
    STORE,
    'limit ${count}`)\n  return rows.map(({ id }) => id as string)',
    'limit 0`)\n  return rows.map(({ id }) => id as string)',
  ),
  simulated(
    'the sweeper wakes the senders',
    'src/outbound/webhooks/sweep.ts',
    'await send(',
    'await Promise.resolve(undefined && ',
  ),
  simulated(
    'the event is in the transaction',
    MUTATE,
    'await publish(tx, events',
    'await publish(ctx.db as unknown as typeof tx, events',
  ),
  simulated(
    'an event is published',
    MUTATE,
    'await publish(tx, events, {',
    'await (async (..._: unknown[]) => [] as string[])(tx, events, {',
  ),
  simulated(
    'the publisher wakes the senders',
    MUTATE,
    'if (endpointIds.length > 0) ctx.waitUntil(wakeSenders(ctx, endpointIds))',
    '',
  ),
  simulated(
    'the senders are woken after the commit',
    MUTATE,
    'endpointIds.push(...(await publish(tx, events, { actorUserId: actor.userId, now: ctx.databaseNow })))',
    'await wakeSenders(ctx, await publish(tx, events, { actorUserId: actor.userId, now: ctx.databaseNow }))',
  ),
  simulated('a sender whose call failed gets a message', WAKE, "calls[n]?.status === 'rejected'", 'n < 0'),
  simulated(
    'senders beyond those that are called get a message',
    WAKE,
    'send(ctx, wakes.slice(DIRECT_MAX))',
    'send(ctx, [])',
  ),
  simulated('results that wait for others are recorded', ROUND, 'overdue = true', 'overdue = false'),
  simulated('one event for each idempotency key', PUBLISH, 'key: event.idempotencyKey', 'key: null'),
  simulated('disabled endpoints get no event', PUBLISH, 'and e.enabled and', 'and'),
  simulated(
    "other projects' endpoints get no event",
    PUBLISH,
    'where project_ref = g.project',
    'where project_ref is not null',
  ),
  simulated(
    "other organizations' endpoints get no event",
    PUBLISH,
    'where organization_id = g.organization and project_ref is null\n      union all select id from ${webhookEndpoints} where project_ref = g.project\n    ) near join ${webhookEndpoints} e on e.id = near.id\n    where e.organization_id = g.organization and',
    'where project_ref is null\n      union all select id from ${webhookEndpoints} where project_ref = g.project\n    ) near join ${webhookEndpoints} e on e.id = near.id\n    where',
  ),
  simulated(
    'endpoints get only the event types that they subscribe to',
    PUBLISH,
    "and e.event_types && array[g.type, '*']",
    '',
  ),
  simulated(
    'the current secret signs',
    'src/outbound/webhooks/attempt.ts',
    '[secret, ...old.filter(',
    '[...old.filter(',
  ),
  simulated(
    'one pending delivery for each message',
    'src/management/observability/webhooks/deliveries.ts',
    "on conflict (message_id) where status = 'pending'\n      do update set asked = true, next_at = least(d.next_at, excluded.next_at)",
    '',
  ),
  unsimulated(
    'an alarm that fires while it is being set is planned again',
    SENDER,
    'mustPlan = false\n    const dueMs = await runStatement(() => nextDueMs(db, now, endpointId))\n    if (dueMs !== undefined) await wakeAt(clock() + Math.max(dueMs, WAIT_MS_MIN))',
    'const dueMs = await runStatement(() => nextDueMs(db, now, endpointId))\n    if (dueMs !== undefined) await wakeAt(clock() + Math.max(dueMs, WAIT_MS_MIN))\n    mustPlan = false',
  ),
  simulated(
    'a sender that died during its claim frees its place',
    ADMISSION,
    'now >= hold.until || hold.until - now > CLAIM_MS_MAX',
    'false',
  ),
  stressed('two claims do not wait for each other', STORE, 'for update of d skip locked', ''),
  stressed('an endpoint that is being deleted gets no event', PUBLISH, 'for key share of e', ''),
  stressed(
    'results and a deletion lock in the same order',
    STORE,
    'where id = ${endpointId} for key share',
    'where id = ${endpointId}',
  ),
]

/** Returns the mutant that the environment names: the source is loaded without this guard. */
export const mutantToTry = (): Mutant | undefined => MUTANTS.find(({ name }) => name === process.env.FAULTS_MUTANT)

export function withoutGuard({ file, find, replace }: Mutant, source: string): string {
  if (!source.includes(find)) throw new Error(`${file} no longer contains: ${find}`)
  return source.replace(find, () => replace)
}
