import { and, asc, eq, isNull, lte, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { projects, type ServedWorker, workers } from '../../model/tables/index.ts'
import { isCronTime, nextCronTime } from '../../platform/cron-expression.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { describeError } from '../../platform/http/log.ts'
import { projectUrl } from '../gateway/project-address.ts'
import { callProgram } from '../runtime/call-program.ts'
import { recordUnansweredCall } from '../runtime/processes/failed-calls.ts'
import { isNotRun } from '../runtime/processes/not-run-responses.ts'
import type { Scheduled } from '../runtime/processes/process-protocol.ts'
import type { ProgramCall } from '../runtime/program-call.ts'
import { cronsOf } from './worker-plan.ts'

const MINUTE_MS = 60_000
/** Age of a missed minute from which it is skipped. */
const LATE_MS_MAX = 5 * MINUTE_MS
/** Workers claimed in one statement. */
const CLAIMED_MAX = 500
const CLAIMS_MAX = 10
/** Concurrent calls in one isolate. */
const RUNNING_MAX = 16
const RUNNING_OF_PROJECT_MAX = 4
/** Time between attempts to start a waiting call. */
const RETRY_MS = 100
/** A sweep that has not looked for a free slot for this time gets none from others: the runtime may have ended it. */
const SILENT_MS_MAX = 10 * RETRY_MS

type Due = Awaited<ReturnType<typeof findDue>>[number]

interface CronCall extends Scheduled {
  ref: string
  name: string
  /** In epoch milliseconds. A call that finds no process begins to wait again. */
  waitingSince: number
}

/** Calls the workers whose cron expressions match the minute of `at`, or earlier ones that were missed recently. */
export async function callScheduledWorkers(ctx: SystemCtx, at: Date): Promise<void> {
  for (let n = 0; n < CLAIMS_MAX; n += 1) {
    const due = await findDue(ctx, at)
    const claimed = due.length > 0 ? await claim(ctx, due, at) : []
    const calls = claimed.flatMap((worker) => callsOf(worker, at))
    if (calls.length > 0) await callAll(ctx, calls)
    if (due.length < CLAIMED_MAX) return
  }
}

async function findDue({ db }: SystemCtx, at: Date) {
  const found = await db
    .select({
      id: workers.id,
      ref: workers.projectRef,
      name: workers.name,
      served: workers.served,
      dueAt: workers.cronDueAt,
    })
    .from(workers)
    .innerJoin(projects, eq(projects.ref, workers.projectRef))
    .where(and(lte(workers.cronDueAt, at), isNull(workers.deletedAt), eq(projects.status, 'ACTIVE_HEALTHY')))
    .orderBy(asc(workers.cronDueAt))
    .limit(CLAIMED_MAX)
  return found.flatMap(({ served, dueAt, ...worker }) => (served && dueAt ? [{ ...worker, served, dueAt }] : []))
}

/**
 * Claims each due worker by advancing its next due time: of concurrent sweeps, one wins. A worker redeployed meanwhile
 * is left to the next sweep.
 */
async function claim({ db }: SystemCtx, due: readonly Due[], at: Date): Promise<Due[]> {
  const moved = due.map(({ id, served, dueAt }) => ({
    ...{ id, deploymentId: served.deploymentId, dueAt },
    next: nextCronTime(served.crons ?? [], at) ?? null,
  }))
  const rows = await rowsOf<{ id: string }>(
    db,
    sql`update workers w set cron_due_at = m.next
      from json_to_recordset(${JSON.stringify(moved)}::json)
        as m (id uuid, "deploymentId" text, "dueAt" timestamptz, next timestamptz)
      where w.id = m.id and w.cron_due_at = m."dueAt" and w.served ->> 'deploymentId' = m."deploymentId"
        and w.deleted_at is null
      returning w.id`,
  )
  const ids = new Set(rows.map(({ id }) => id))
  return due.filter(({ id }) => ids.has(id))
}

const callsOf = ({ id: workerId, ref, name, served, dueAt }: Due, at: Date): CronCall[] => {
  const waitingSince = Date.now()
  return minutesBetween(Math.max(dueAt.getTime(), at.getTime() - LATE_MS_MAX), at.getTime()).flatMap((minute) =>
    cronsAt(served, new Date(minute)).map((cron) => ({ ref, name, waitingSince, cron, minute, workerId })),
  )
}

/** Returns the starts of the minutes in an interval, all in epoch milliseconds. */
function minutesBetween(from: number, until: number): number[] {
  const first = Math.ceil(from / MINUTE_MS)
  const count = Math.floor(until / MINUTE_MS) - first + 1
  return Array.from({ length: Math.max(count, 0) }, (_, n) => (first + n) * MINUTE_MS)
}

const cronsAt = (served: ServedWorker, minute: Date): string[] =>
  cronsOf(served).filter((cron) => isCronTime(cron, minute))

/** Running calls by project, across sweeps: one sweep may still run when the next begins. */
const running = new Map<string, number>()
let runningTotal = 0

interface Sweep {
  waiting: Set<CronCall>
  polledAt: number
}

/** Sweeps with waiting calls, including those that the runtime has ended. */
const sweeps = new Set<Sweep>()

async function callAll(ctx: SystemCtx, calls: readonly CronCall[]): Promise<void> {
  const waiting = new Set(calls)
  const sweep = { waiting, polledAt: 0 }
  const until = Date.now() + LATE_MS_MAX
  const callWhenFree = async () => {
    while (waiting.size > 0 && Date.now() < until) {
      const call = takeNext(sweep)
      if (call && (await callWorkerAt(ctx, call))) continue
      if (call) waiting.add({ ...call, waitingSince: Date.now() })
      await scheduler.wait(RETRY_MS)
    }
  }
  await Promise.all(Array.from({ length: Math.min(RUNNING_MAX, calls.length) }, callWhenFree))
  sweeps.delete(sweep)
  for (const call of waiting)
    await recordUnansweredCall(programCall(ctx, call), { at: Date.now(), status: 503, why: 'late' })
  ctx.log.info('worker_crons_called', { calls: calls.length - waiting.size, dropped: waiting.size })
}

/**
 * Takes the next call from the sweep if a slot is free. The slot is left to another sweep if a project with fewer running calls
 * waits there: only its own sweep can make a call.
 */
function takeNext(sweep: Sweep): CronCall | undefined {
  sweep.polledAt = Date.now()
  sweeps.add(sweep)
  if (runningTotal >= RUNNING_MAX) return undefined
  let next: CronCall | undefined
  let fewest = RUNNING_OF_PROJECT_MAX
  for (const other of sweeps) {
    const silentMs = sweep.polledAt - other.polledAt
    if (silentMs > LATE_MS_MAX) sweeps.delete(other)
    if (silentMs > SILENT_MS_MAX) continue
    for (const call of other.waiting) {
      const calls = running.get(call.ref) ?? 0
      const hasWaitedLonger = next && calls === fewest && call.waitingSince < next.waitingSince
      if (calls < fewest || hasWaitedLonger) [next, fewest] = [call, calls]
    }
  }
  return next && sweep.waiting.delete(next) ? next : undefined
}

function programCall(
  { bindings, waitUntil, config }: SystemCtx,
  { ref, name, waitingSince: _, ...scheduled }: CronCall,
): ProgramCall {
  const url = `${projectUrl(config, ref)}/workers/v1/${name}`
  const address = { kind: 'worker', ref, name, path: '/', servicePath: '/', prefix: '/', url, isShared: false } as const
  return { request: new Request(url), address, bindings, execution: { waitUntil }, scheduled }
}

/** Returns false if the worker was not called because no process was free. */
async function callWorkerAt(ctx: SystemCtx, call: CronCall): Promise<boolean> {
  const { ref } = call
  running.set(ref, (running.get(ref) ?? 0) + 1)
  runningTotal += 1
  try {
    const response = await callProgram(programCall(ctx, call))
    await response.body?.cancel()
    return !(response.status === 503 && isNotRun(response))
  } catch (error) {
    ctx.log.error('failed', { code: 'worker_cron', error: describeError(error) })
    return true
  } finally {
    runningTotal -= 1
    const remaining = (running.get(ref) ?? 1) - 1
    if (remaining > 0) running.set(ref, remaining)
    else running.delete(ref)
  }
}
