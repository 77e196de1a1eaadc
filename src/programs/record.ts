import { createCtx } from '../ctx.ts'
import { newTimedId } from '../db/id.ts'
import type { Bindings, SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'
import { openFunction } from '../runtime/known.ts'
import { begin, end } from '../runtime/recorder.ts'
import { findPlan } from '../workers/plan.ts'
import type { ProgramName } from './protocol.ts'

interface Lost {
  program: ProgramName
  method: string
  /** As the caller asked for it, without its query. */
  path: string
  /** Epoch milliseconds. */
  at: number
  status: number
}

const PROBLEM =
  'The process that runs programs was ended while this call was under way: one of its programs took all CPU time or memory'

/** Of a call whose process has ended nobody else can tell its developer. */
export async function recordLost(
  host: { bindings: Bindings; execution: ExecutionContext },
  { program, at, status, ...lost }: Lost,
): Promise<void> {
  const ctx = createCtx({ bindings: host.bindings, waitUntil: (work) => host.execution.waitUntil(work) })
  try {
    const ids = await idsOf(ctx, program)
    if (!ids) return
    const id = newTimedId(new Date(at))
    begin({ id, kind: program.kind, projectRef: program.ref, ...ids, ...lost, at })
    end(host, id, { status, ms: Date.now() - at, problem: PROBLEM })
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
