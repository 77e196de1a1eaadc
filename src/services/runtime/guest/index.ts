/**
 * Code that runs in the isolate of a deployed program, around the program. The program can change all of it, so
 * security must not depend on it.
 */
import * as workers from 'cloudflare:workers'
import { installClock, startClock } from './clock.ts'
import { flush, installConsole, takeEarlyLines } from './console.ts'
import { installDeno, installFiles } from './deno.ts'
import { installFetch } from './fetch.ts'
import type { Files } from './files.ts'
import { type Invocation, type Line, runInInvocation } from './invocation.ts'
import { printError } from './print-error.ts'
import {
  answer,
  type Controller,
  currentScheduledHandler,
  currentServer,
  type HandlerArguments,
  serveExport,
  serverReady,
} from './serve.ts'
import { installStreams } from './streams.ts'
import { installUncaught } from './uncaught.ts'
import { installWebSocket } from './websocket-standard.ts'

export { serveNode, serverReady } from './serve.ts'

interface Program {
  /** Evaluates the program. Called at the first request, because some operations are only allowed within a request. */
  start?(): Promise<Record<string, unknown>>
  default?: unknown
}

/** Data from the host; callers cannot set it. */
interface HostData {
  /** Id of the call in the invocation log. */
  id?: string
  address?: string
  chainToken?: string
  /** Set for a call by a cron expression. */
  scheduled?: { cron: string; minute: number }
  /** Set when the isolate is no longer needed. */
  end?: boolean
}

/** A function of the runtime that its types lack. */
const { abortIsolate } = workers as unknown as { abortIsolate(reason: string): never }

interface Env {
  '=console': { write(id: string, lines: Line[]): Promise<unknown> }
}

installConsole()
installUncaught()
installClock()
installDeno()
installFetch()
installStreams()
installWebSocket()

const BOOT_FAILED = 'Failed to start Worker: '
const NO_HANDLER = `${BOOT_FAILED}it neither calls Deno.serve nor exports a fetch handler`

/** Whether the program has called Deno.serve. */
export const hasServer = (): boolean => currentServer() !== undefined

let starting: Promise<void> | undefined
let hasStarted = false

/** Starts the program before its first request. Responds with 204, or with a text that says why it cannot start. */
export const createCheck = (program: Program): ExportedHandler => ({
  async fetch(_request, _env, ctx) {
    startClock()
    try {
      starting ??= startProgram(program)
      ctx.waitUntil(starting.catch(() => {}))
      if (!currentServer()) await starting
      if (currentServer() || currentScheduledHandler()) return new Response(null, { status: 204 })
      throw new Error(NO_HANDLER)
    } catch (error) {
      return new Response(error instanceof Error ? error.message : String(error))
    }
  },
})

interface Source {
  files: Files
  entrypoint: string
  /** Whether the exported handler gets the environment and the context, as in a Worker. */
  isWorker: boolean
}

export function createWorker(program: Program, source: Source): ExportedHandler<Env> {
  installFiles(source)
  return {
    async fetch(request, env, ctx) {
      const { id = '', address = '', chainToken = '', scheduled, end } = (request.cf ?? {}) as HostData
      if (end) return abortIsolate('idle')
      startClock()
      const invocation: Invocation = {
        ...{ id, address, chainToken, isForWorkers: false, lines: [], printed: 0 },
        waitUntil: (work) => ctx.waitUntil(work),
        write: (...line) => env['=console'].write(...line),
      }
      return runInInvocation(invocation, async () => {
        takeEarlyLines(invocation)
        try {
          if (!hasStarted) {
            starting ??= startProgram(program)
            // Other requests wait for the start too, so it must not be canceled with this request.
            ctx.waitUntil(starting.catch(() => {}))
            if (!currentServer()) await starting
          }
          if (scheduled) return await runScheduled(scheduled, handlerArguments(env, ctx))
          const served = currentServer()
          if (!served) throw noFetchHandlerError()
          invocation.isForWorkers = source.isWorker && served.isExported === true
          return await answer(
            served,
            withoutHostData(request),
            invocation.isForWorkers ? handlerArguments(env, ctx) : undefined,
          )
        } finally {
          if (invocation.lines.length > 0) ctx.waitUntil(flush(invocation))
        }
      })
    },
  }
}

async function runScheduled(
  { cron, minute }: { cron: string; minute: number },
  args: HandlerArguments,
): Promise<Response> {
  const controller: Controller = { cron, scheduledTime: minute, type: 'scheduled', noRetry() {} }
  try {
    const handler = currentScheduledHandler()
    if (!handler) throw new Error('The program exports no scheduled handler')
    await handler(controller, ...args)
    return new Response(null, { status: 204 })
  } catch (error) {
    printError(error)
    throw error
  }
}

function noFetchHandlerError(): Error {
  if (!currentScheduledHandler()) return new Error(NO_HANDLER)
  const error = new Error('The program exports a scheduled handler but no fetch handler')
  printError(error)
  return error
}

/**
 * Removes host data from the request. `fetcher` is removed because printing the request would call it. The request is
 * changed in place, because a new one would cost more than everything else here.
 */
const withoutHostData = (request: Request): Request =>
  Object.defineProperties(request, { cf: { value: {} }, fetcher: { value: null } })

const handlerArguments = ({ '=console': _ours, ...env }: Env, ctx: ExecutionContext): HandlerArguments => [env, ctx]

async function startProgram({ start, default: exported }: Program): Promise<void> {
  try {
    const evaluated = start ? start().then((module) => serveExport(module.default)) : serveExport(exported)
    // Some programs end with `await server.finished`, so evaluation may never end.
    await Promise.race([evaluated, serverReady])
    hasStarted = true
  } catch (error) {
    throw new Error(`${BOOT_FAILED}${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`)
  }
}
