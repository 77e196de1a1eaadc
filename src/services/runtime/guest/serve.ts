import { STATUS_MAX, withoutReencoding } from './encoding.ts'
import { currentInvocation } from './invocation.ts'
import { printError } from './print-error.ts'
import { afterFirstChunk } from './streams.ts'

interface Info {
  remoteAddr: { transport: 'tcp'; hostname: string; port: number }
  completed: Promise<void>
}
type Answer = Response | Promise<Response>
export type Handler = (request: Request, info: Info) => Answer

interface ServeOptions {
  handler?: Handler
  fetch?: Handler
  onError?(error: unknown): Answer
  onListen?(address: { transport: 'tcp'; hostname: string; port: number }): void
}

interface Served {
  handler: Handler
  onError?: ServeOptions['onError']
  /** Set for an exported handler, absent after a call of Deno.serve. */
  isExported?: true
}

let served: Served | undefined
let announce: () => void = () => {}
/** Resolves when the program has registered its server. */
export const serverReady = new Promise<void>((resolve) => {
  announce = resolve
})
export const currentServer = (): Served | undefined => served

const ADDRESS = { transport: 'tcp', hostname: '0.0.0.0', port: 8000 } as const

/** Deno.serve in all its forms: a handler, options and a handler, or options that contain the handler. */
export function serve(first: Handler | ServeOptions, second?: Handler | ServeOptions) {
  const args = [first, second]
  const options = args.find((value) => typeof value === 'object' && value !== null) ?? {}
  const { handler: named, fetch, onError, onListen } = options as ServeOptions
  const handler = args.find((value) => typeof value === 'function') ?? named ?? fetch
  if (typeof handler !== 'function') throw new TypeError('Deno.serve requires a handler')
  served = { handler: handler as Handler, onError }
  onListen?.(ADDRESS)
  announce()
  let end: () => void = () => {}
  const finished = new Promise<void>((resolve) => {
    end = resolve
  })
  const shutdown = async () => end()
  return { addr: ADDRESS, finished, shutdown, ref() {}, unref() {}, [Symbol.asyncDispose]: shutdown }
}

export interface Controller {
  cron: string
  scheduledTime: number
  type: 'scheduled'
  noRetry(): void
}

type Entrypoint = new (
  ctx: unknown,
  env: unknown,
) => { fetch(request: Request): Answer; scheduled(controller: Controller): unknown }

const isEntrypoint = (exported: unknown, handler: 'fetch' | 'scheduled'): exported is Entrypoint =>
  typeof exported === 'function' && typeof exported.prototype?.[handler] === 'function'

/** Registers exported handlers. An exported class is instantiated for each request, as on Workers. */
export function serveExport(exported: unknown): void {
  scheduledHandler = scheduledIn(exported)
  if (served) return
  if (isEntrypoint(exported, 'fetch')) {
    const handler = (request: Request, env: unknown, ctx?: unknown) => new exported(ctx, env).fetch(request)
    served = { handler, isExported: true }
    return
  }
  if (typeof exported !== 'object' || exported === null) return
  const { fetch, onError } = exported as ServeOptions
  if (typeof fetch === 'function') served = { handler: fetch.bind(exported), onError, isExported: true }
}

type ScheduledHandler = (controller: Controller, ...args: HandlerArguments) => unknown
let scheduledHandler: ScheduledHandler | undefined
/** The program's exported handler for cron expressions. */
export const currentScheduledHandler = (): ScheduledHandler | undefined => scheduledHandler

function scheduledIn(exported: unknown): ScheduledHandler | undefined {
  if (isEntrypoint(exported, 'scheduled')) {
    return (controller, env, ctx) => new exported(ctx, env).scheduled(controller)
  }
  if (typeof exported !== 'object' || exported === null) return undefined
  const { scheduled } = exported as { scheduled?: ScheduledHandler }
  return typeof scheduled === 'function' ? scheduled.bind(exported) : undefined
}

interface NodeServer {
  address(): { port: number } | string | null
  listen(...args: unknown[]): unknown
}
type NodeRequest = (port: number, request: Request) => Promise<Response>

/** Registers a server of `node:http` when it listens, at any port. */
export function serveNode({ prototype }: { prototype: NodeServer }, answerAt: NodeRequest): void {
  const { listen } = prototype
  prototype.listen = function (...args) {
    const listening = listen.apply(this, args)
    const address = this.address()
    if (!served && typeof address === 'object' && address) {
      served = { handler: (request) => answerAt(address.port, request) }
      announce()
    }
    return listening
  }
}

/** Arguments of a worker's exported handler after the request. */
export type HandlerArguments = readonly [env: unknown, ctx: unknown]

export async function answer(
  { handler, onError }: Served,
  request: Request,
  workerArgs?: HandlerArguments,
): Promise<Response> {
  try {
    const remoteAddr = { transport: 'tcp', hostname: currentInvocation()?.address ?? '', port: 0 } as const
    const args = workerArgs ?? [{ remoteAddr, completed: Promise.resolve() }]
    const response = await (handler as (...all: readonly unknown[]) => Answer)(request, ...args)
    if (!(response instanceof Response)) throw new TypeError('The handler must return a Response')
    if (response.status > STATUS_MAX) throw new RangeError(`The response has the invalid status ${response.status}`)
    return await afterFirstChunk(workerArgs ? response : withoutReencoding(response))
  } catch (error) {
    if (onError) return workerArgs ? onError(error) : withoutReencoding(await onError(error))
    printError(error)
    throw error
  }
}
