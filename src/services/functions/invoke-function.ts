import { readConfig } from '../../config.ts'
import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { ProjectStatus } from '../../model/tables/index.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { epochMs } from '../../platform/clock.ts'
import { describeError } from '../../platform/http/log.ts'
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

/** Until an answer begins. */
const IDLE_MS_MAX = 150_000

/** What index.ts exports for programs to be connected to. */
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

/** One call of a function, from whoever sends it. */
export const invokeFunction = (call: Call): Promise<Response> =>
  guarded(call, async (ctxOf) => {
    const admitted = await admissionOf(ctxOf, call)
    if (admitted instanceof Response) return admitted
    return admitCall({
      ...{ call, program: programOf(admitted) },
      refused: (code) => logRefusal(ctxOf(), call, refuse(code)),
      answer: (invocation) => answer(call, admitted, invocation),
    })
  })

/** The answer to a call that the function is not to be run for; undefined for any other. */
export const refusalOfFunction = (call: Call): Promise<Response | undefined> =>
  guarded(call, async (ctxOf) => {
    const admitted = await admissionOf(ctxOf, call)
    return admitted instanceof Response ? admitted : undefined
  })

async function guarded<T>(call: Call, work: (ctxOf: () => SystemCtx) => Promise<T>): Promise<T | Response> {
  const ctxOf = () => contextOf(call)
  try {
    return await work(ctxOf)
  } catch (error) {
    const ctx = ctxOf()
    ctx.log.error('failed', { code: 'function_call', error: describeError(error) })
    return logRefusal(ctx, call, refuse('SERVICE_UNAVAILABLE'))
  }
}

/** The function that is called, or the refusal. */
async function admissionOf(ctxOf: () => SystemCtx, call: Call): Promise<Callable | Response> {
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

/** Browsers ask first without any credential; the function answers them as it likes. */
const credentialProblem = async (ctxOf: () => SystemCtx, { request }: Call, known: KnownFunction) =>
  known.deployed?.verifyJwt && request.method !== 'OPTIONS' ? tokenProblem(ctxOf(), known, request.headers) : undefined

async function answer(call: Call, known: Callable, { id: invocation, cause }: Invocation): Promise<Answer> {
  const { request, address, bindings } = call
  const name = attemptName(baseName(known))
  const limit = limitOf(IDLE_MS_MAX)
  noteCall(known.deployed.id, name, epochMs())
  try {
    const isolate = bindings.LOADER.get(name, () => load(call, known, name))
    const { method } = request
    const secret = readConfig(bindings).ENCRYPTION_KEY
    const chainToken = signChainToken({ programId: known.deployed.id, secret }, cause)
    const cf = { invocation, address: addressOf(call), chainToken }
    const answering = isolate.getEntrypoint().fetch(address.url, {
      ...{ method, body: bodyOf(request), headers: headersFor(call), redirect: 'manual' },
      cf: cf as unknown as CfProperties,
    })
    const response = await Promise.race([answering, limit.reached])
    noteAnswer(name, epochMs())
    return { response }
  } catch (error) {
    return failed(call, known, { error, name })
  } finally {
    noteCallEnd(name)
    limit.lift()
  }
}

class TooLate extends Error {
  override name = 'TooLate'
}

/** The runtime ends what is still under way once the answer is given; a signal for that would cost each call more than a timer. */
function limitOf(ms: number): { reached: Promise<never>; lift(): void } {
  const { promise: reached, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new TooLate()), ms)
  return { reached, lift: () => clearTimeout(timer) }
}

function load(call: Call, known: Callable, name: string): Promise<WorkerLoaderWorkerCode> {
  const code = loadFunctionCode(contextOf(call), known, surroundingsOf(call, known)).catch((cause) => {
    noteLoadFailure(name, cause)
    throw cause
  })
  // Others wait for it too, and the runtime would keep for ever that its first caller went away.
  call.execution.waitUntil(code.catch(() => {}))
  return code
}

function surroundingsOf({ execution }: Call, { ref, deployed }: Callable): ProgramBindings {
  const { FunctionOutbound, FunctionConsole } = execution.exports as unknown as Exports
  const props = { ref, programId: deployed.id }
  return {
    outbound: (databaseUrl) => FunctionOutbound({ props: { ...props, databaseUrl } }),
    console: FunctionConsole({ props }),
  }
}

/** Of everything that is fixed when it starts: whose it is, the code, the secrets, the password in its variables. */
const baseName = ({ secretsGeneration, sealedPassword, deployed: { id, deploymentId, version } }: Callable) =>
  `${id}:${deploymentId}:${version}:${secretsGeneration}:${sealedPassword.slice(-8)}`

interface Failed {
  error: unknown
  /** Of its isolate. */
  name: string
}

function failed(call: Call, known: Callable, { error, name }: Failed): Answer {
  const isLate = error instanceof TooLate
  const message = error instanceof Error ? error.message : String(error)
  const isOwn = error instanceof Error && 'remote' in error
  const cause = isOwn ? undefined : loadFailureOf(name)
  const isBootFailure = message.startsWith('Failed to start Worker')
  if (isOwn && !isBootFailure) noteAnswer(name, epochMs())
  // One that has answered is sound; callers who break off must not be able to have it started anew.
  if (isBootFailure || cause !== undefined || ((isLate || !isOwn) && !hasAnswered(name))) {
    allowRestart(baseName(known), name, cause !== undefined)
  }
  if (isLate) return { response: refuse('IDLE_TIMEOUT'), problem: 'no answer began within 150 s' }
  if (cause !== undefined) {
    contextOf(call).log.error('failed', { code: 'function_load', error: describeError(cause) })
    return { response: refuse('SERVICE_UNAVAILABLE'), problem: 'the function could not be loaded' }
  }
  if (isBootFailure) return { response: refuse('BOOT_ERROR'), problem: message }
  if (!isOwn && /exceeded|limit/i.test(message)) return { response: refuse('WORKER_RESOURCE_LIMIT'), problem: message }
  return { response: refuse('WORKER_ERROR'), problem: isOwn ? undefined : message }
}

function addressOf({ request, bindings }: Call): string {
  const { CLIENT_ADDRESS_HEADER: header } = readConfig(bindings)
  return (header && request.headers.get(header)) || ''
}

/** The request's headers, with the caller's address where programs look for it. */
function headersFor(call: Call): Headers {
  const { headers } = call.request
  const address = addressOf(call)
  if (address === '') return headers
  const forwarded = new Headers(headers)
  forwarded.set('x-forwarded-for', address)
  return forwarded
}
