/**
 * Runs in the isolate of what users deploy, before it and around it. Nothing that must hold against the program may rest on this: the
 * program can change all of it.
 */
import * as workers from 'cloudflare:workers'
import { installClock, startClock } from './clock.ts'
import { flush, installConsole, type Line, takeEarlyLines } from './console.ts'
import { installDeno, installFiles } from './deno.ts'
import { installFetch } from './fetch.ts'
import type { Files } from './files.ts'
import { type Invocation, within } from './invocation.ts'
import { printError } from './print-error.ts'
import { answer, type Controller, type Given, serveExport, serving, whatIsScheduled, whatServes } from './serve.ts'
import { installStreams } from './streams.ts'
import { installWebSocket } from './websocket-standard.ts'

export { serveNode, serving } from './serve.ts'

interface Program {
  /** Evaluates the program, at its first request: only then is it allowed all that it is in Deno. */
  start?(): Promise<Record<string, unknown>>
  default?: unknown
}

/** Callers cannot set these. */
interface FromHost {
  invocation?: string
  address?: string
  chainToken?: string
  /** It is no request, but a minute that a cron expression of the worker names. */
  scheduled?: { cron: string; minute: number }
  /** Nobody needs this isolate any more. */
  end?: boolean
}

/** The types do not know it yet. */
const { abortIsolate } = workers as unknown as { abortIsolate(reason: string): never }

interface Env {
  '=console': { write(id: string, lines: Line[]): Promise<unknown> }
}

installConsole()
installClock()
installDeno()
installFetch()
installStreams()
installWebSocket()

const BOOT_FAILED = 'Failed to start Worker: '
const NOTHING_SERVES = `${BOOT_FAILED}it neither calls Deno.serve nor exports a fetch handler`

/** Whether the program has called Deno.serve. */
export const hasServer = (): boolean => whatServes() !== undefined

let starting: Promise<void> | undefined
let hasStarted = false

/** Starts the program before its first request, and tells in words why that does not succeed. */
export const createCheck = (program: Program): ExportedHandler => ({
  async fetch(_request, _env, ctx) {
    startClock()
    try {
      starting ??= started(program)
      ctx.waitUntil(starting.catch(() => {}))
      if (!whatServes()) await starting
      if (whatServes() || whatIsScheduled()) return new Response(null, { status: 204 })
      throw new Error(NOTHING_SERVES)
    } catch (error) {
      return new Response(error instanceof Error ? error.message : String(error))
    }
  },
})

interface Source {
  files: Files
  entrypoint: string
  /** Its exported handler gets the environment and the context. */
  isWorker: boolean
}

export function createWorker(program: Program, source: Source): ExportedHandler<Env> {
  installFiles(source)
  return {
    async fetch(request, env, ctx) {
      const { invocation: id = '', address = '', chainToken = '', scheduled, end } = (request.cf ?? {}) as FromHost
      if (end) return abortIsolate('idle')
      startClock()
      const invocation: Invocation = {
        ...{ id, address, chainToken, isForWorkers: false, lines: [], printed: 0 },
        waitUntil: (work) => ctx.waitUntil(work),
        write: (...line) => env['=console'].write(...line),
      }
      return within(invocation, async () => {
        takeEarlyLines(invocation)
        try {
          if (!hasStarted) {
            starting ??= started(program)
            // It is everybody's: it must not end with the request that it began in.
            ctx.waitUntil(starting.catch(() => {}))
            if (!whatServes()) await starting
          }
          if (scheduled) return await runScheduled(scheduled, given(env, ctx))
          const served = whatServes()
          if (!served) throw nothingServes()
          invocation.isForWorkers = source.isWorker && served.isExported === true
          return await answer(served, shownTo(request), invocation.isForWorkers ? given(env, ctx) : undefined)
        } finally {
          if (invocation.lines.length > 0) ctx.waitUntil(flush(invocation))
        }
      })
    },
  }
}

async function runScheduled({ cron, minute }: { cron: string; minute: number }, given: Given): Promise<Response> {
  const controller: Controller = { cron, scheduledTime: minute, type: 'scheduled', noRetry() {} }
  try {
    const handler = whatIsScheduled()
    if (!handler) throw new Error('The program exports no scheduled handler')
    await handler(controller, ...given)
    return new Response(null, { status: 204 })
  } catch (error) {
    printError(error)
    throw error
  }
}

function nothingServes(): Error {
  if (!whatIsScheduled()) return new Error(NOTHING_SERVES)
  const error = new Error('The program exports a scheduled handler, and no fetch handler')
  printError(error)
  return error
}

/** Without what only the host has to say, and without its way to it, which a program that prints the request would call. A new one would cost more than all else here. */
const shownTo = (request: Request): Request =>
  Object.defineProperties(request, { cf: { value: {} }, fetcher: { value: null } })

const given = ({ '=console': _ours, ...env }: Env, ctx: ExecutionContext): Given => [env, ctx]

async function started({ start, default: exported }: Program): Promise<void> {
  try {
    const evaluated = start ? start().then((module) => serveExport(module.default)) : serveExport(exported)
    // A program may wait at its end for the server to finish.
    await Promise.race([evaluated, serving])
    hasStarted = true
  } catch (error) {
    throw new Error(`${BOOT_FAILED}${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`)
  }
}
