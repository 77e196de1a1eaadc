import { createCtx } from '../../../ctx.ts'
import type { Bindings } from '../../../platform/bindings.ts'
import { forgetFunction } from '../../functions/open-function.ts'
import { forgetProject } from '../../gateway/open-project.ts'
import { instancesOf } from '../../workers/instance-stub.ts'
import { forgetPlan, type Plan } from '../../workers/worker-plan.ts'
import { endIdleIsolates } from '../isolates.ts'
import { isNotRun } from './not-run-responses.ts'
import { type CallMetadata, NOT_RUN_HEADER, type ProcessCommand, WRONG_PROCESS } from './process-protocol.ts'
import { readCallContext } from './process-requests.ts'
import { claimChange } from './program-changes.ts'

type Serve = (
  request: Request,
  bindings: Bindings,
  execution: ExecutionContext,
  known?: CallMetadata,
) => Response | Promise<Response>

/** Entrypoint of a process that runs programs, for requests of the API and the supervisor only. */
export const createProgramsHost = (serve: Serve) =>
  ({
    async fetch(request, bindings, execution) {
      const context = readCallContext(request, bindings)
      if (!context) return new Response(null, { status: 403 })
      // The caller means an earlier process that listened on this port.
      if (context.process !== bindings.PROGRAMS_PROCESS) {
        return new Response(null, { status: WRONG_PROCESS, headers: { [NOT_RUN_HEADER]: '1' } })
      }
      const { command, changed, cause, id, isLost, scheduled } = context
      if (command) return Response.json({ result: await run(command, { request, bindings, execution }) })
      if (changed && claimChange(changed.program, changed.at)) {
        forgetFunction(changed.program.ref)
        forgetProject(changed.program.ref)
        forgetPlan(changed.program.ref)
      }
      return withNotRunHeader(await serve(request, bindings, execution, { cause, id, isLost, scheduled }))
    },
  }) satisfies ExportedHandler<Bindings>

interface IncomingCommand {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}

async function run(command: ProcessCommand, { request, bindings, execution }: IncomingCommand): Promise<unknown> {
  if (command === 'alive') return bindings.PROGRAMS_PROCESS
  if (command === 'end-idle') {
    const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
    // It runs in the background, because the supervisor takes a slow response for a hung process.
    waitUntil(endIdleIsolates(createCtx({ bindings, waitUntil })))
    return true
  }
  const { workerId, plan } = (await request.json()) as { workerId: string; plan: Plan }
  const object = instancesOf(bindings, workerId)
  return command === 'stop' ? object.stop() : object[command](plan)
}

function withNotRunHeader(response: Response): Response {
  const notRun = isNotRun(response)
  if (response.headers.has(NOT_RUN_HEADER) === notRun) return response
  const copy = new Response(response.body, response)
  copy.headers.delete(NOT_RUN_HEADER)
  if (notRun) copy.headers.set(NOT_RUN_HEADER, '1')
  return copy
}
