import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import pg from 'pg'
import { createWebSocketStream, WebSocketServer } from 'ws'
import { listenOnFreePort } from '../listen.ts'

interface Statement {
  query: string
  params?: unknown[]
}

const asText = { getTypeParser: () => (value: string) => value }

/** The protocols of Neon's driver, HTTP and WebSockets, in front of one Postgres, which checks all passwords. */
export async function startProxy(port: number): Promise<{ url: string; stop(): Promise<void> }> {
  const server = createServer((req, res) => {
    answer(req, res).catch((error) => {
      res.writeHead(400, { 'content-type': 'application/json' })
      res.end(JSON.stringify({ ...error, code: error.code ?? null, message: error.message }))
    })
  })
  const webSockets = new WebSocketServer({ server, perMessageDeflate: false })
  webSockets.on('connection', (socket) => {
    const [near, far] = [createWebSocketStream(socket), connect({ port, host: '127.0.0.1', noDelay: true })]
    near.pipe(far).pipe(near)
    near.on('error', () => far.destroy())
    far.on('error', () => near.destroy())
    near.on('close', () => far.destroy())
    far.on('close', () => near.destroy())
  })
  const proxyPort = await listenOnFreePort(server)
  return {
    url: `http://127.0.0.1:${proxyPort}`,
    async stop() {
      for (const socket of webSockets.clients) socket.terminate()
      server.closeAllConnections()
      server.close()
    },
  }
}

/** Runs one statement, or several in one transaction. */
async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const body = JSON.parse(await text(req)) as Statement | { queries: Statement[] }
  const client = new pg.Client({ connectionString: String(req.headers['neon-connection-string']) })
  client.on('error', () => {})
  await client.connect()
  try {
    const run = async ({ query, params = [] }: Statement) => {
      const { fields, rows, command, rowCount } = await client.query({
        ...{ text: query, values: params, rowMode: 'array', types: asText as unknown as pg.CustomTypesConfig },
      })
      return { fields, rows, command, rowCount, rowAsArray: true }
    }
    res.setHeader('content-type', 'application/json')
    if (!('queries' in body)) return void res.end(JSON.stringify(await run(body)))
    const results = []
    await client.query('BEGIN')
    for (const statement of body.queries) results.push(await run(statement))
    await client.query('COMMIT')
    res.end(JSON.stringify({ results }))
  } finally {
    await client.end()
  }
}
