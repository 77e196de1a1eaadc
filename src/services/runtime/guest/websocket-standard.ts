import { printError } from './print-error.ts'

type Data = Parameters<WebSocket['send']>[0]
const { prototype } = WebSocket
const { send, close } = prototype

/** Sockets as the standard has them, where the runtime does otherwise. */
export function installWebSocket(): void {
  prototype.send = function (data: Data | Blob) {
    if (this.readyState === WebSocket.OPEN && (data instanceof Blob || waiting.has(this))) {
      const bytes = data instanceof Blob ? data.arrayBuffer() : asItIsNow(data)
      inOrder(this, async () => send.call(this, await bytes))
    } else send.call(this, data as Data)
  }
  prototype.close = function (...given) {
    if (waiting.has(this)) inOrder(this, () => close.apply(this, given))
    else close.apply(this, given)
  }
  globalThis.WebSocket = new Proxy(WebSocket, {
    construct: (target, given, made) => withoutLateErrors(Reflect.construct(target, given, made)),
  })
}

/** Settles when all that was sent with a Blob, or after it, has gone. */
const waiting = new WeakMap<WebSocket, Promise<void>>()

function inOrder(socket: WebSocket, work: () => void | Promise<void>): void {
  const done = Promise.resolve(waiting.get(socket))
    .then(work)
    .catch((error) => socket.readyState === WebSocket.OPEN && printError(error))
    .then(() => {
      if (waiting.get(socket) === done) waiting.delete(socket)
    })
  waiting.set(socket, done)
}

/** Whoever sends it may change it then. */
function asItIsNow(data: Data): Data {
  if (data instanceof ArrayBuffer) return data.slice()
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice() : String(data)
}

/** After both sides have closed, the runtime tells of the end of the connection as of an error. */
export function withoutLateErrors(socket: WebSocket): WebSocket {
  let isClosed = false
  socket.addEventListener('close', ({ wasClean }) => {
    if (!wasClean) return
    isClosed = true
    Object.defineProperty(socket, 'onerror', { get: () => null, set() {} })
  })
  // The first of its listeners, so that no other one is told.
  socket.addEventListener('error', (event) => isClosed && event.stopImmediatePropagation())
  return socket
}
