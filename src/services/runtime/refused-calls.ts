import type { SystemCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { setNewest } from '../../platform/bounded-map.ts'
import { rateLimitCaller, takeQuota } from '../../platform/rate-limit/quota.ts'
import { markNotRun } from './processes/reply-origin.ts'

/** Calls that no program is run for. Whoever sends them without end must not fill the database. */
const ROWS_MAX = 20
const ROWS_MS = 60_000
const PROGRAMS_MAX = 10_000

/** Since a minute began; `unlisted` are those that have left no row. */
interface Refused {
  since: number
  rows: number
  unlisted: number
}
const refused = new Map<string, Refused>()

export interface Row {
  /** Refused before it, of which no other row tells. */
  unlisted: number
}

/** Undefined where a refused call of the program leaves no row. */
export function claimLogRow(program: string): Row | undefined {
  const now = Date.now()
  const known = refused.get(program)
  if (!known || now - known.since >= ROWS_MS) {
    setNewest(refused, program, { since: now, rows: 1, unlisted: 0 }, PROGRAMS_MAX)
    return { unlisted: known?.unlisted ?? 0 }
  }
  known.rows += 1
  if (known.rows <= ROWS_MAX) return { unlisted: 0 }
  known.unlisted += 1
  return undefined
}

/** What the developer finds in the row. */
export const withUnlistedCount = (reason: string, { unlisted }: Row): string =>
  unlisted === 0 ? reason : `${reason} (${unlisted} refused calls before it have no row)`

interface Call {
  request: Request
  address: { path: string }
  bindings: Bindings
}

export function logRefusal({ log }: SystemCtx, { request, address }: Call, response: Response): Response {
  const { status, headers } = response
  log.info('request', { method: request.method, path: address.path, status, error: headers.get('sb-error-code') })
  return response
}

/** Who guesses at projects and programs is held to what strangers may ask of the management API. */
export async function refuseUnknownProgram(
  ctx: SystemCtx,
  call: Call,
  refuse: (code: 'NOT_FOUND' | 'TOO_MANY_REQUESTS') => Response,
): Promise<Response> {
  const { CLIENT_ADDRESS_HEADER: header } = ctx.config
  const caller = rateLimitCaller(undefined, (header && call.request.headers.get(header)) || undefined)
  const quota = { caller, scope: 'none', now: ctx.now().getTime() }
  const { allowed } = await takeQuota(call.bindings.RATE_LIMITERS, quota, 'standard')
  return markNotRun(logRefusal(ctx, call, refuse(allowed ? 'NOT_FOUND' : 'TOO_MANY_REQUESTS')))
}
