import { printError } from './print-error.ts'

type Data = Parameters<WebSocket['send']>[0]
const { prototype } = WebSocket
const { send, close } = prototype

/** Makes WebSockets follow the standard where the runtime deviates. */
export function installWebSocket(): void {
  prototype.send = function (data: Data | Blob) {
    if (this.readyState === WebSocket.OPEN && (data instanceof Blob || waiting.has(this))) {
      const bytes = data instanceof Blob ? data.arrayBuffer() : snapshotOf(data)
      runInOrder(this, async () => send.call(this, await bytes))
    } else send.call(this, data as Data)
  }
  prototype.close = function (...args) {
    if (waiting.has(this)) runInOrder(this, () => close.apply(this, args))
    else close.apply(this, args)
  }
  globalThis.WebSocket = new Proxy(WebSocket, {
    construct: (target, args, newTarget) => withoutLateErrors(Reflect.construct(target, args, newTarget)),
  })
}

/** The queue of each socket, which begins with a Blob. It resolves when everything in it has been sent. */
const waiting = new WeakMap<WebSocket, Promise<void>>()

function runInOrder(socket: WebSocket, work: () => void | Promise<void>): void {
  const done = Promise.resolve(waiting.get(socket))
    .then(work)
    .catch((error) => socket.readyState === WebSocket.OPEN && printError(error))
    .then(() => {
      if (waiting.get(socket) === done) waiting.delete(socket)
    })
  waiting.set(socket, done)
}

/** Copies the data, because the program may change it after `send`. */
function snapshotOf(data: Data): Data {
  if (data instanceof ArrayBuffer) return data.slice()
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice() : String(data)
}

/** Suppresses the error event that the runtime dispatches after a clean close. */
export function withoutLateErrors(socket: WebSocket): WebSocket {
  let isClosed = false
  socket.addEventListener('close', ({ wasClean }) => {
    if (!wasClean) return
    isClosed = true
    Object.defineProperty(socket, 'onerror', { get: () => null, set() {} })
  })
  // Registered first, so that no other listener gets the event.
  socket.addEventListener('error', (event) => isClosed && event.stopImmediatePropagation())
  return socket
}
