import type { SystemCtx } from '../../ctx.ts'
import type { ProjectStatus } from '../../model/tables/index.ts'
import { epochMs } from '../../platform/clock.ts'
import { describeError } from '../../platform/http/log.ts'
import { withTimeout } from '../../platform/timeout.ts'
import { isPaused } from '../gateway/paused.ts'
import { allowRestart, attemptName, loadFailureOf, noteLoadFailure } from '../runtime/isolate-starts.ts'
import { hasAnswered, noteAnswer, noteCall, noteCallEnd } from '../runtime/isolates.ts'
import { programBindingsOf } from '../runtime/program-bindings.ts'
import {
  type Answer,
  type FindProgram,
  IDLE_MS_MAX,
  type Invocation,
  type ProgramCall,
} from '../runtime/program-call.ts'
import { loadFunctionCode } from '../runtime/program-code.ts'
import { type RefusalCode, refuse } from '../runtime/refusals.ts'
import { bodyOf } from '../runtime/request-body.ts'
import { tokenProblem } from './caller-check.ts'
import { type KnownFunction, openFunction } from './open-function.ts'

type Deployed = NonNullable<KnownFunction['deployed']>
type Callable = KnownFunction & { deployed: Deployed }

/** Returns undefined if the project has no such function. */
export const findFunction: FindProgram = async (ctxOf, call) => {
  const known = await openFunction(ctxOf, call.address.ref, call.address.name)
  if (!known?.deployed) return undefined
  const callable = { ...known, deployed: known.deployed }
  const { id: programId, deploymentId } = known.deployed
  return {
    ids: { kind: 'function', programId, deploymentId },
    findProblem: async () =>
      statusProblem(known.projectStatus, callable.deployed) ?? credentialProblem(ctxOf, call, callable),
    run: (invocation) => run({ ctxOf, call, known: callable, invocation }),
  }
}

const NOT_READY: readonly ProjectStatus[] = ['COMING_UP', 'INIT_FAILED', 'GOING_DOWN', 'REMOVED']

function statusProblem(project: ProjectStatus, { status }: Deployed): RefusalCode | undefined {
  if (isPaused(project)) return 'PROJECT_PAUSED'
  if (NOT_READY.includes(project)) return 'PROJECT_NOT_READY'
  if (status === 'REMOVED') return 'NOT_FOUND'
  return status === 'THROTTLED' ? 'WORKER_RESOURCE_LIMIT' : undefined
}

/** Preflight requests of browsers carry no credential, so the function itself answers them. */
const credentialProblem = async (ctxOf: () => SystemCtx, { request }: ProgramCall, known: Callable) =>
  known.deployed.verifyJwt && request.method !== 'OPTIONS' ? tokenProblem(ctxOf(), known, request.headers) : undefined

interface Run {
  ctxOf(): SystemCtx
  call: ProgramCall
  known: Callable
  invocation: Invocation
}

async function run(one: Run): Promise<Answer> {
  const { call, known, invocation } = one
  const { request, address, bindings } = call
  const name = attemptName(baseName(known))
  noteCall(known.deployed.id, name, epochMs())
  try {
    const isolate = bindings.LOADER.get(name, () => load(one, name))
    const { method } = request
    const responding = isolate.getEntrypoint().fetch(address.url, {
      ...{ method, body: bodyOf(request), headers: headersFor(request, invocation), redirect: 'manual' },
      cf: invocation as unknown as CfProperties,
    })
    const response = await withTimeout(IDLE_MS_MAX, responding, () => new IdleTimeout())
    noteAnswer(name, epochMs())
    return { response }
  } catch (error) {
    return answerFailure(one, { error, name })
  } finally {
    noteCallEnd(name)
  }
}

class IdleTimeout extends Error {
  override name = 'IdleTimeout'
}

function load({ ctxOf, call, known }: Run, name: string): Promise<WorkerLoaderWorkerCode> {
  const programBindings = programBindingsOf(call.execution, { ref: known.ref, programId: known.deployed.id })
  const code = loadFunctionCode(ctxOf(), known, programBindings).catch((cause) => {
    noteLoadFailure(name, cause)
    throw cause
  })
  // Other calls wait for the same code. Without this, the runtime would cache a cancellation if the first caller disconnects.
  call.execution.waitUntil(code.catch(() => {}))
  return code
}

/** Isolate name without the attempt: covers everything fixed at start (function, code, secrets, database password). */
const baseName = ({ secretsGeneration, sealedPassword, deployed: { id, deploymentId, version } }: Callable) =>
  `${id}:${deploymentId}:${version}:${secretsGeneration}:${sealedPassword.slice(-8)}`

interface Failure {
  error: unknown
  /** Name of the isolate. */
  name: string
}

function answerFailure({ ctxOf, known }: Run, { error, name }: Failure): Answer {
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
  if (isTimeout) return { response: refuse('function', 'IDLE_TIMEOUT'), problem: 'no response began within 150 s' }
  if (cause !== undefined) {
    ctxOf().log.error('failed', { code: 'function_load', error: describeError(cause) })
    return { response: refuse('function', 'SERVICE_UNAVAILABLE'), problem: 'the function could not be loaded' }
  }
  if (isBootFailure) return { response: refuse('function', 'BOOT_ERROR'), problem: message }
  if (!isThrownByProgram && /exceeded|limit/i.test(message))
    return { response: refuse('function', 'WORKER_RESOURCE_LIMIT'), problem: message }
  return { response: refuse('function', 'WORKER_ERROR'), problem: isThrownByProgram ? undefined : message }
}

/** The request's headers, with the client address where programs look for it. */
function headersFor({ headers }: Request, { address }: Invocation): Headers {
  if (address === '') return headers
  const forwarded = new Headers(headers)
  forwarded.set('x-forwarded-for', address)
  return forwarded
}
