import { asWritten } from './encoding.ts'
import { current } from './invocation.ts'
import { printError } from './print-error.ts'
import { begun } from './streams.ts'

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
  /** It was exported, and did not call Deno.serve. */
  isExported?: true
}

let served: Served | undefined
let announce: () => void = () => {}
/** Settles when the program has said what answers its requests. */
export const serving = new Promise<void>((resolve) => {
  announce = resolve
})
export const whatServes = (): Served | undefined => served

const ADDRESS = { transport: 'tcp', hostname: '0.0.0.0', port: 8000 } as const

/** In all forms that Deno has: a handler, options and a handler, or options with the handler among them. */
export function serve(first: Handler | ServeOptions, second?: Handler | ServeOptions) {
  const given = [first, second]
  const options = given.find((value) => typeof value === 'object' && value !== null) ?? {}
  const { handler: named, fetch, onError, onListen } = options as ServeOptions
  const handler = given.find((value) => typeof value === 'function') ?? named ?? fetch
  if (typeof handler !== 'function') throw new TypeError('Deno.serve needs a handler')
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

/** A program that exports its handler instead, or a class of such: each request gets one of its own, as where such are written for. */
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

type ScheduledHandler = (controller: Controller, ...given: Given) => unknown
let scheduledHandler: ScheduledHandler | undefined
/** What the program exports for its cron expressions. */
export const whatIsScheduled = (): ScheduledHandler | undefined => scheduledHandler

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
  listen(...given: unknown[]): unknown
}
type NodeRequest = (port: number, request: Request) => Promise<Response>

/** A program that has a server of Node's listen instead, at whatever port. */
export function serveNode({ prototype }: { prototype: NodeServer }, answerAt: NodeRequest): void {
  const { listen } = prototype
  prototype.listen = function (...given) {
    const listening = listen.apply(this, given)
    const address = this.address()
    if (!served && typeof address === 'object' && address) {
      served = { handler: (request) => answerAt(address.port, request) }
      announce()
    }
    return listening
  }
}

/** What a worker's exported handler is given beside the request, as on the platform that such are written for. */
export type Given = readonly [env: unknown, ctx: unknown]

export async function answer({ handler, onError }: Served, request: Request, given?: Given): Promise<Response> {
  try {
    const remoteAddr = { transport: 'tcp', hostname: current()?.address ?? '', port: 0 } as const
    const more = given ?? [{ remoteAddr, completed: Promise.resolve() }]
    const response = await (handler as (...all: readonly unknown[]) => Answer)(request, ...more)
    if (!(response instanceof Response)) throw new TypeError('The handler must return a Response')
    return await begun(given ? response : asWritten(response))
  } catch (error) {
    if (onError) return given ? onError(error) : asWritten(await onError(error))
    printError(error)
    throw error
  }
}
