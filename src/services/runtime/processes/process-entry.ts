import { createCtx } from '../../../ctx.ts'
import type { Bindings } from '../../../platform/bindings.ts'
import { forgetFunction } from '../../functions/open-function.ts'
import { forgetProject } from '../../gateway/open-project.ts'
import { instancesOf } from '../../workers/instance-stub.ts'
import { forgetPlan, type Plan } from '../../workers/worker-plan.ts'
import { endIdleIsolates } from '../isolates.ts'
import { type CallMetadata, NOT_RUN_HEADER, type ProcessCommand, WRONG_PROCESS } from './process-protocol.ts'
import { readCallContext } from './process-requests.ts'
import { claimChange } from './program-changes.ts'
import { isNotRun } from './reply-origin.ts'

type Serve = (
  request: Request,
  bindings: Bindings,
  execution: ExecutionContext,
  known?: CallMetadata,
) => Response | Promise<Response>

/** The entrypoint of a process that runs programs, for the API and the supervisor alone. */
export const createProgramsHost = (serve: Serve) =>
  ({
    async fetch(request, bindings, execution) {
      const context = readCallContext(request, bindings)
      if (!context) return new Response(null, { status: 403 })
      // Another one listened at this port when the caller learned of it.
      if (context.process !== bindings.PROGRAMS_PROCESS) {
        return new Response(null, { status: WRONG_PROCESS, headers: { [NOT_RUN_HEADER]: '1' } })
      }
      const { command, changed, cause, id, isLost, scheduled } = context
      if (command) return Response.json({ result: await answer(command, { request, bindings, execution }) })
      if (changed && claimChange(changed.program, changed.at)) {
        forgetFunction(changed.program.ref)
        forgetProject(changed.program.ref)
        forgetPlan(changed.program.ref, changed.program.name)
      }
      return marked(await serve(request, bindings, execution, { cause, id, isLost, scheduled }))
    },
  }) satisfies ExportedHandler<Bindings>

interface Asked {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}

async function answer(command: ProcessCommand, { request, bindings, execution }: Asked): Promise<unknown> {
  if (command === 'alive') return bindings.PROGRAMS_PROCESS
  if (command === 'end-idle') {
    const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
    // Many take their time; who asks takes silence for the end of the process.
    waitUntil(endIdleIsolates(createCtx({ bindings, waitUntil })))
    return true
  }
  const { workerId, plan } = (await request.json()) as { workerId: string; plan: Plan }
  const object = instancesOf(bindings, workerId)
  return command === 'stop' ? object.stop() : object[command](plan)
}

function marked(response: Response): Response {
  const isMarked = isNotRun(response)
  if (response.headers.has(NOT_RUN_HEADER) === isMarked) return response
  const shown = new Response(response.body, response)
  shown.headers.delete(NOT_RUN_HEADER)
  if (isMarked) shown.headers.set(NOT_RUN_HEADER, '1')
  return shown
}
