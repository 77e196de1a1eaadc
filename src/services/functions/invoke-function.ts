import { readConfig } from '../../config.ts'
import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { ProjectStatus } from '../../model/tables/index.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { epochMs } from '../../platform/clock.ts'
import { describeError } from '../../platform/http/log.ts'
import { withTimeout } from '../../platform/timeout.ts'
import { type Answer, admitCall, type Invocation, rejectCall } from '../runtime/admit-call.ts'
import { allowRestart, attemptName, loadFailureOf, noteLoadFailure } from '../runtime/isolate-starts.ts'
import { hasAnswered, noteAnswer, noteCall, noteCallEnd } from '../runtime/isolates.ts'
import { signChainToken } from '../runtime/processes/call-chains.ts'
import type { CallMetadata } from '../runtime/processes/process-protocol.ts'
import { loadFunctionCode, type ProgramBindings } from '../runtime/program-code.ts'
import type { OutboundProps } from '../runtime/program-egress.ts'
import { logRefusal, refuseUnknownProgram } from '../runtime/refused-calls.ts'
import { bodyOf } from '../runtime/request-body.ts'
import { tokenProblem } from './caller-check.ts'
import type { FunctionAddress } from './function-address.ts'
import { type KnownFunction, openFunction } from './open-function.ts'
import { type RefusalCode, refuse } from './refusals.ts'

/** Time until the response must begin. */
const IDLE_MS_MAX = 150_000

/** Entrypoints exported by index.ts that programs are connected to. */
interface Exports {
  FunctionOutbound(options: { props: OutboundProps }): Fetcher
  FunctionConsole(options: { props: { ref: string; programId: string } }): Fetcher
}

interface Call extends CallMetadata {
  request: Request
  address: FunctionAddress
  bindings: Bindings
  execution: ExecutionContext
}
type Deployed = NonNullable<KnownFunction['deployed']>
type Callable = KnownFunction & { deployed: Deployed }

/** Calls a function and returns its response, or a refusal. */
export const invokeFunction = (call: Call): Promise<Response> =>
  refuseOnError(call, async (ctxOf) => {
    const callable = await findCallable(ctxOf, call)
    if (callable instanceof Response) return callable
    return admitCall({
      ...{ call, program: programOf(callable) },
      refused: (code) => logRefusal(ctxOf(), call, refuse(code)),
      answer: (invocation) => run(call, callable, invocation),
    })
  })

/** Returns the refusal of a call for which the function does not run; undefined if the function runs. */
export const refusalOfFunction = (call: Call): Promise<Response | undefined> =>
  refuseOnError(call, async (ctxOf) => {
    const callable = await findCallable(ctxOf, call)
    return callable instanceof Response ? callable : undefined
  })

async function refuseOnError<T>(call: Call, work: (ctxOf: () => SystemCtx) => Promise<T>): Promise<T | Response> {
  const ctxOf = () => contextOf(call)
  try {
    return await work(ctxOf)
  } catch (error) {
    const ctx = ctxOf()
    ctx.log.error('failed', { code: 'function_call', error: describeError(error) })
    return logRefusal(ctx, call, refuse('SERVICE_UNAVAILABLE'))
  }
}

/** Returns the function if it may be called, or the refusal. */
async function findCallable(ctxOf: () => SystemCtx, call: Call): Promise<Callable | Response> {
  const { ref, slug } = call.address
  const known = await openFunction(ctxOf, ref, slug)
  if (!known?.deployed) return refuseUnknownProgram(ctxOf(), call, refuse)
  const callable = { ...known, deployed: known.deployed }
  const problem = statusProblem(known.projectStatus, known.deployed) ?? (await credentialProblem(ctxOf, call, known))
  if (!problem) return callable
  const refusal = logRefusal(ctxOf(), call, refuse(problem))
  return rejectCall({ call, program: programOf(callable) }, refusal, `refused: ${problem}`)
}

const programOf = ({ deployed }: Callable) =>
  ({ kind: 'function', programId: deployed.id, deploymentId: deployed.deploymentId }) as const

const contextOf = ({ bindings, execution }: Call): SystemCtx =>
  createCtx({
    bindings,
    waitUntil: (work) => execution.waitUntil(work),
  })

const PAUSED: readonly ProjectStatus[] = ['INACTIVE', 'PAUSING']
const NOT_READY: readonly ProjectStatus[] = ['COMING_UP', 'INIT_FAILED', 'GOING_DOWN', 'REMOVED']

function statusProblem(project: ProjectStatus, { status }: Deployed): RefusalCode | undefined {
  if (PAUSED.includes(project)) return 'PROJECT_PAUSED'
  if (NOT_READY.includes(project)) return 'PROJECT_NOT_READY'
  if (status === 'REMOVED') return 'NOT_FOUND'
  return status === 'THROTTLED' ? 'WORKER_RESOURCE_LIMIT' : undefined
}

/** Preflight requests of browsers carry no credential, so the function itself answers them. */
const credentialProblem = async (ctxOf: () => SystemCtx, { request }: Call, known: KnownFunction) =>
  known.deployed?.verifyJwt && request.method !== 'OPTIONS' ? tokenProblem(ctxOf(), known, request.headers) : undefined

async function run(call: Call, known: Callable, { id: invocation, cause }: Invocation): Promise<Answer> {
  const { request, address, bindings } = call
  const name = attemptName(baseName(known))
  noteCall(known.deployed.id, name, epochMs())
  try {
    const isolate = bindings.LOADER.get(name, () => load(call, known, name))
    const { method } = request
    const secret = readConfig(bindings).ENCRYPTION_KEY
    const chainToken = signChainToken({ programId: known.deployed.id, secret }, cause)
    const cf = { invocation, address: clientAddressOf(call), chainToken }
    const responding = isolate.getEntrypoint().fetch(address.url, {
      ...{ method, body: bodyOf(request), headers: headersFor(call), redirect: 'manual' },
      cf: cf as unknown as CfProperties,
    })
    const response = await withTimeout(IDLE_MS_MAX, responding, () => new IdleTimeout())
    noteAnswer(name, epochMs())
    return { response }
  } catch (error) {
    return answerFailure(call, known, { error, name })
  } finally {
    noteCallEnd(name)
  }
}

class IdleTimeout extends Error {
  override name = 'IdleTimeout'
}

function load(call: Call, known: Callable, name: string): Promise<WorkerLoaderWorkerCode> {
  const code = loadFunctionCode(contextOf(call), known, programBindingsOf(call, known)).catch((cause) => {
    noteLoadFailure(name, cause)
    throw cause
  })
  // Other calls wait for the same code: if the first caller left, the runtime would cache the cancellation for ever.
  call.execution.waitUntil(code.catch(() => {}))
  return code
}

function programBindingsOf({ execution }: Call, { ref, deployed }: Callable): ProgramBindings {
  const { FunctionOutbound, FunctionConsole } = execution.exports as unknown as Exports
  const props = { ref, programId: deployed.id }
  return {
    outbound: (databaseUrl) => FunctionOutbound({ props: { ...props, databaseUrl } }),
    console: FunctionConsole({ props }),
  }
}

/** Isolate name without the attempt: covers everything fixed at start (function, code, secrets, database password). */
const baseName = ({ secretsGeneration, sealedPassword, deployed: { id, deploymentId, version } }: Callable) =>
  `${id}:${deploymentId}:${version}:${secretsGeneration}:${sealedPassword.slice(-8)}`

interface Failure {
  error: unknown
  /** Name of the isolate. */
  name: string
}

function answerFailure(call: Call, known: Callable, { error, name }: Failure): Answer {
  const isTimeout = error instanceof IdleTimeout
  const message = error instanceof Error ? error.message : String(error)
  const isThrownByProgram = error instanceof Error && 'remote' in error
  const cause = isThrownByProgram ? undefined : loadFailureOf(name)
  const isBootFailure = message.startsWith('Failed to start Worker')
  if (isThrownByProgram && !isBootFailure) noteAnswer(name, epochMs())
  // An isolate that has answered before works: callers that disconnect must not be able to restart it.
  if (isBootFailure || cause !== undefined || ((isTimeout || !isThrownByProgram) && !hasAnswered(name))) {
    allowRestart(baseName(known), name, cause !== undefined)
  }
  if (isTimeout) return { response: refuse('IDLE_TIMEOUT'), problem: 'no response began within 150 s' }
  if (cause !== undefined) {
    contextOf(call).log.error('failed', { code: 'function_load', error: describeError(cause) })
    return { response: refuse('SERVICE_UNAVAILABLE'), problem: 'the function could not be loaded' }
  }
  if (isBootFailure) return { response: refuse('BOOT_ERROR'), problem: message }
  if (!isThrownByProgram && /exceeded|limit/i.test(message))
    return { response: refuse('WORKER_RESOURCE_LIMIT'), problem: message }
  return { response: refuse('WORKER_ERROR'), problem: isThrownByProgram ? undefined : message }
}

function clientAddressOf({ request, bindings }: Call): string {
  const { CLIENT_ADDRESS_HEADER: header } = readConfig(bindings)
  return (header && request.headers.get(header)) || ''
}

/** The request's headers, with the client address where programs look for it. */
function headersFor(call: Call): Headers {
  const { headers } = call.request
  const address = clientAddressOf(call)
  if (address === '') return headers
  const forwarded = new Headers(headers)
  forwarded.set('x-forwarded-for', address)
  return forwarded
}
