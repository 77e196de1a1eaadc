import type { SystemCtx } from '../../ctx.ts'
import { limitHeaders, takeAnonymousQuota } from '../../platform/rate-limit/quota.ts'
import { createRowLimit } from '../gateway/row-limit.ts'
import { markNotRun } from './processes/not-run-responses.ts'
import type { ProgramCall } from './program-call.ts'
import { refuse } from './refusals.ts'

/** Claims a log row for a refused call of a program. Callers cause refusals at will: they must not use up the rows of the project. */
export const claimRefusalRow = createRowLimit({ max: 20, perMinute: 20 })

/** Log text of a refused call. */
export const refusalText = (reason: string, skipped: number): string =>
  skipped === 0 ? reason : `${reason} (${skipped} earlier refused calls are not listed)`

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
