import { createCtx } from '../../../ctx.ts'
import type { Bindings } from '../../../platform/bindings.ts'
import { forgetFunction } from '../../functions/open-function.ts'
import { forgetProject } from '../../gateway/open-project.ts'
import { instancesOf } from '../../workers/instance-stub.ts'
import { forgetPlan, type Plan } from '../../workers/worker-plan.ts'
import { endIdleIsolates } from '../isolates.ts'
import { type Known, NOT_RUN_HEADER, type Question, WRONG_PROCESS } from './process-protocol.ts'
import { toldWith } from './process-requests.ts'
import { isNews } from './program-changes.ts'
import { isWithoutProgram } from './reply-origin.ts'

type Serve = (
  request: Request,
  bindings: Bindings,
  execution: ExecutionContext,
  known?: Known,
) => Response | Promise<Response>

/** The entrypoint of a process that runs programs, for the API and the supervisor alone. */
export const createProgramsHost = (serve: Serve) =>
  ({
    async fetch(request, bindings, execution) {
      const told = toldWith(request, bindings)
      if (!told) return new Response(null, { status: 403 })
      // Another one listened at this port when the caller learned of it.
      if (told.process !== bindings.PROGRAMS_PROCESS) {
        return new Response(null, { status: WRONG_PROCESS, headers: { [NOT_RUN_HEADER]: '1' } })
      }
      const { question, changed, cause, id, isLost, scheduled } = told
      if (question) return Response.json({ result: await answer(question, { request, bindings, execution }) })
      if (changed && isNews(changed.program, changed.at)) {
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

async function answer(question: Question, { request, bindings, execution }: Asked): Promise<unknown> {
  if (question === 'alive') return bindings.PROGRAMS_PROCESS
  if (question === 'end-idle') {
    const waitUntil = (work: Promise<unknown>) => execution.waitUntil(work)
    // Many take their time; who asks takes silence for the end of the process.
    waitUntil(endIdleIsolates(createCtx({ bindings, waitUntil })))
    return true
  }
  const { workerId, plan } = (await request.json()) as { workerId: string; plan: Plan }
  const object = instancesOf(bindings, workerId)
  return question === 'stop' ? object.stop() : object[question](plan)
}

function marked(response: Response): Response {
  const isMarked = isWithoutProgram(response)
  if (response.headers.has(NOT_RUN_HEADER) === isMarked) return response
  const shown = new Response(response.body, response)
  shown.headers.delete(NOT_RUN_HEADER)
  if (isMarked) shown.headers.set(NOT_RUN_HEADER, '1')
  return shown
}
