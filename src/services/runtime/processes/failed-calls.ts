import type { SystemCtx } from '../../../ctx.ts'
import { createCtx } from '../../../ctx.ts'
import type { Bindings } from '../../../platform/bindings.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { describeError } from '../../../platform/http/log.ts'
import { openFunction } from '../../functions/open-function.ts'
import { findPlan } from '../../workers/worker-plan.ts'
import { begin, end } from '../call-recorder.ts'
import { claimLogRow, withUnlistedCount } from '../refused-calls.ts'
import { keyOf, type ProgramName } from './process-protocol.ts'

interface Unserved {
  program: ProgramName
  method: string
  /** As the caller asked for it, without its query. */
  path: string
  /** Epoch milliseconds. */
  at: number
  status: number
  why: keyof typeof PROBLEMS
}

const ENDED = 'The process that runs the programs of this project was ended while this call was under way'
const PROBLEMS = {
  cpu: `${ENDED}: one of them computed for too long without a pause`,
  memory: `${ENDED}: they took too much memory`,
  crash: `${ENDED}: it crashed`,
  silent: `${ENDED}: it did not answer for a minute`,
  killed: `${ENDED} from outside, perhaps because the machine ran out of memory`,
  'held back':
    'Not called for a while, because it ended the process it ran in by computing for too long or taking too much memory; a deployment does not end this earlier',
}

/** Of a call that its program has not answered, and of which nobody else can tell its developer. */
export async function recordUnansweredCall(
  host: { bindings: Bindings; execution: Pick<ExecutionContext, 'waitUntil'> },
  { program, at, status, why, ...unserved }: Unserved,
): Promise<void> {
  const row = why === 'held back' ? claimLogRow(keyOf(program)) : { unlisted: 0 }
  if (!row) return
  const ctx = createCtx({ bindings: host.bindings, waitUntil: (work) => host.execution.waitUntil(work) })
  try {
    const ids = await idsOf(ctx, program)
    if (!ids) return
    const id = newTimedId(new Date(at))
    begin({ id, kind: program.kind, projectRef: program.ref, ...ids, ...unserved, at })
    end(host, id, { status, ms: Date.now() - at, problem: withUnlistedCount(PROBLEMS[why], row) })
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
