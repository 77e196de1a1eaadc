import type { SystemCtx } from '../../ctx.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { limitHeaders, takeAnonymousQuota } from '../../platform/rate-limit/quota.ts'
import { markNotRun } from './processes/not-run-responses.ts'
import type { ProgramCall } from './program-call.ts'
import { refuse } from './refusals.ts'

/** Limits of log rows for calls without a run of the program, which must not fill the database. */
const ROWS_MAX = 20
const ROWS_MS = 60_000
const PROGRAMS_MAX = 10_000

/** Refused calls of the current minute; `unlisted` counts those without a row. */
interface RefusalCount {
  since: number
  rows: number
  unlisted: number
}
const refused = new BoundedMap<string, RefusalCount>(PROGRAMS_MAX)

export interface Row {
  /** Number of earlier refused calls without a row. */
  unlisted: number
}

/** Claims a log row for a refused call. Returns undefined if the call must not be logged. */
export function claimLogRow(program: string): Row | undefined {
  const now = Date.now()
  const known = refused.get(program)
  if (!known || now - known.since >= ROWS_MS) {
    refused.set(program, { since: now, rows: 1, unlisted: 0 })
    return { unlisted: known?.unlisted ?? 0 }
  }
  known.rows += 1
  if (known.rows <= ROWS_MAX) return { unlisted: 0 }
  known.unlisted += 1
  return undefined
}

/** Log text of a refused call. */
export const withUnlistedCount = (reason: string, { unlisted }: Row): string =>
  unlisted === 0 ? reason : `${reason} (${unlisted} earlier refused calls are not listed)`

export function logRefusal({ log }: SystemCtx, { request, address }: ProgramCall, response: Response): Response {
  const { status, headers } = response
  log.info('request', { method: request.method, path: address.path, status, error: headers.get('sb-error-code') })
  return response
}

/** Calls of unknown projects and programs count against the anonymous rate limit of the management API. */
export async function refuseUnknownProgram(ctx: SystemCtx, call: ProgramCall): Promise<Response> {
  const { request, bindings, address } = call
  const anonymous = { headers: request.headers, limiters: bindings.RATE_LIMITERS }
  const decision = await takeAnonymousQuota(ctx, anonymous)
  const { kind } = address
  const refusal = decision.allowed
    ? refuse(kind, 'NOT_FOUND')
    : refuse(kind, 'TOO_MANY_REQUESTS', limitHeaders(decision))
  return markNotRun(logRefusal(ctx, call, refusal))
}
