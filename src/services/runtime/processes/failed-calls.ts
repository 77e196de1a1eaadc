import type { SystemCtx } from '../../../ctx.ts'
import { createCtx } from '../../../ctx.ts'
import type { Bindings } from '../../../platform/bindings.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { describeError } from '../../../platform/http/log.ts'
import { openFunction } from '../../functions/open-function.ts'
import { findPlan } from '../../workers/worker-plan.ts'
import { recordEnd, recordStart } from '../call-recorder.ts'
import { claimLogRow, withUnlistedCount } from '../refused-calls.ts'
import { keyOf, type ProgramName } from './process-protocol.ts'

interface UnansweredCall {
  program: ProgramName
  method: string
  /** Path that the caller requested, without the query. */
  path: string
  /** Epoch milliseconds. */
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
  killed: `${ENDED} from outside, perhaps because the machine ran out of memory`,
  'held back':
    'Not run: the program is held back for a while, because its process was ended for using too much CPU time or memory. A new deployment does not shorten this',
}

/** Logs a call that its program did not answer and could not log itself. */
export async function recordUnansweredCall(
  host: { bindings: Bindings; execution: Pick<ExecutionContext, 'waitUntil'> },
  { program, at, status, why, ...request }: UnansweredCall,
): Promise<void> {
  const row = why === 'held back' ? claimLogRow(keyOf(program)) : { unlisted: 0 }
  if (!row) return
  const ctx = createCtx({ bindings: host.bindings, waitUntil: (work) => host.execution.waitUntil(work) })
  try {
    const ids = await idsOf(ctx, program)
    if (!ids) return
    const id = newTimedId(new Date(at))
    recordStart({ id, kind: program.kind, projectRef: program.ref, ...ids, ...request, at })
    recordEnd(host, id, { status, ms: Date.now() - at, problem: withUnlistedCount(PROBLEMS[why], row) })
  } catch (error) {
    ctx.log.error('failed', { code: 'invocations', error: describeError(error) })
  }
}

async function idsOf(ctx: SystemCtx, { kind, ref, name }: ProgramName) {
  if (kind === 'worker') {
    const plan = (await findPlan(ctx, ref, name))?.plan
    return plan && { programId: plan.workerId, deploymentId: plan.deploymentId }
  }
  const deployed = (await openFunction(() => ctx, ref, name))?.deployed
  return deployed && { programId: deployed.id, deploymentId: deployed.deploymentId }
}
