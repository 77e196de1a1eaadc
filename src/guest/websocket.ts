/** As Deno has it: a socket to listen on and the response that accepts the upgrade. */
export function upgradeWebSocket(request: Request) {
  if (request.headers.get('upgrade')?.toLowerCase() !== 'websocket') {
    throw new TypeError("Invalid Header: 'upgrade' header must contain 'websocket'")
  }
  const [client, socket] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket]
  socket.accept()
  setTimeout(() => socket.dispatchEvent(new Event('open')))
  return { socket, response: new Response(null, { status: 101, webSocket: client }) }
}
