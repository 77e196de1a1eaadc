const EVENTS = ['open', 'message', 'close', 'error'] as const

/** As Deno has it: a socket to listen on and the response that accepts the upgrade. */
export function upgradeWebSocket(request: Request) {
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket') {
    throw new TypeError("Invalid Header: 'upgrade' header must contain 'websocket'")
  }
  const [client, socket] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket]
  for (const event of EVENTS) addHandlerProperty(socket, event)
  socket.accept()
  setTimeout(() => socket.dispatchEvent(new Event('open')))
  return { socket, response: new Response(null, { status: 101, webSocket: client }) }
}

type Listener = (event: Event) => void

function addHandlerProperty(socket: WebSocket, event: (typeof EVENTS)[number]): void {
  let listener: Listener | undefined
  Object.defineProperty(socket, `on${event}`, {
    get: () => listener ?? null,
    set(value: unknown) {
      if (listener) socket.removeEventListener(event, listener as never)
      listener = typeof value === 'function' ? (value as Listener) : undefined
      if (listener) socket.addEventListener(event, listener as never)
    },
  })
}
