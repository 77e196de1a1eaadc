import { currentInvocation, runInInvocation } from './invocation.ts'
import { reporting } from './uncaught.ts'
import { withoutLateErrors } from './websocket-standard.ts'

/** Deno.upgradeWebSocket: returns the socket and the response that accepts the upgrade. */
export function upgradeWebSocket(request: Request, { protocol }: { protocol?: string } = {}) {
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket') {
    throw new TypeError("Invalid Header: 'upgrade' header must contain 'websocket'")
  }
  const [client, socket] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket]
  withoutLateErrors(socket)
  bindListeners(socket)
  socket.accept()
  setTimeout(() => socket.dispatchEvent(new Event('open')))
  const headers = new Headers(protocol ? { 'sec-websocket-protocol': protocol } : {})
  return { socket, response: new Response(null, { status: 101, webSocket: client, headers }) }
}

type Listener = (event: Event) => unknown

/**
 * Runs the socket's listeners in the invocation that it belongs to. Otherwise their output would be logged for another
 * call.
 */
function bindListeners(socket: WebSocket): void {
  const invocation = currentInvocation()
  if (!invocation) return
  const known = new WeakMap<object, Listener>()
  const bound = (listener: unknown): Listener | undefined => {
    if (typeof listener !== 'function' && (typeof listener !== 'object' || listener === null)) return undefined
    const called = (event: Event) =>
      typeof listener === 'function'
        ? listener.call(socket, event)
        : (listener as EventListenerObject).handleEvent(event)
    const made = known.get(listener) ?? ((event) => runInInvocation(invocation, () => reporting(called)(event)))
    known.set(listener, made)
    return made
  }
  for (const name of ['addEventListener', 'removeEventListener'] as const) {
    const plain = socket[name].bind(socket) as (type: string, listener: unknown, ...more: unknown[]) => void
    const value = (type: string, listener: unknown, ...more: unknown[]) => plain(type, bound(listener), ...more)
    Object.defineProperty(socket, name, { value, configurable: true, writable: true })
  }
  for (const type of ['open', 'message', 'close', 'error']) {
    let handler: Listener | undefined
    const set = (value: unknown) => {
      handler = bound(value)
    }
    Object.defineProperty(socket, `on${type}`, { get: () => handler ?? null, set, configurable: true })
  }
}
