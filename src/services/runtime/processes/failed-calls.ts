import { createCtx } from '../../../ctx.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { describeError } from '../../../platform/http/log.ts'
import { methodAndPathOf } from '../admit-call.ts'
import { recordEnd, recordStart } from '../call-recorder.ts'
import type { ProgramCall } from '../program-call.ts'
import { claimRefusalRow, refusalText } from '../refused-calls.ts'
import { findProgramIds } from '../serve-call.ts'
import { keyOf } from './process-protocol.ts'

interface Outcome {
  /** Arrival of the call, in epoch milliseconds. */
  at: number
  status: number
  why: keyof typeof PROBLEMS
}

const ENDED = 'The process that runs the programs of this project was ended during this call'
const PROBLEMS = {
  cpu: `${ENDED}: one of them used too much CPU time`,
  memory: `${ENDED}: they used too much memory`,
  crash: `${ENDED}: it crashed`,
  silent: `${ENDED}: it did not respond for a minute`,
  unused: `${ENDED}, because the supervisor stopped it`,
  killed: `${ENDED} from outside, perhaps because the machine ran out of memory`,
  late: 'Not run: no capacity was free for this call within five minutes',
  'held back':
    'Not run: the program is held back for a while, because its process was ended for using too much CPU time or memory. A new deployment does not shorten this',
}

/** Logs a call that its program did not answer and could not log itself. */
export async function recordUnansweredCall(call: ProgramCall, { at, status, why }: Outcome): Promise<void> {
  const { address, bindings, execution } = call
  const isNotRun = why === 'held back' || why === 'late'
  const skipped = isNotRun ? claimRefusalRow(keyOf(address), Date.now()) : 0
  if (skipped === undefined) return
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
  try {
    // A scheduled call that is no longer due is logged too, for the version that is served now.
    const ids = await findProgramIds(ctx, { ...call, scheduled: undefined })
    if (!ids) return
    const id = newTimedId(new Date(at))
    const started = { id, ...ids, projectRef: address.ref, ...methodAndPathOf(call), at }
    if (isNotRun) recordStart(started, 0)
    else recordStart(started)
    recordEnd(call, id, { status, ms: Date.now() - at, problem: refusalText(PROBLEMS[why], skipped) })
  } catch (error) {
    ctx.log.error('failed', { code: 'invocations', error: describeError(error) })
  }
}
