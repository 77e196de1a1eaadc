import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { extended } from '../../support/extended.ts'
import { invocationsOf, putFunction, type Stores } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { type Installation, startInstallation } from '../../support/storage-installation.ts'
import { WAIT_MS } from '../../support/wait.ts'

let installation: Installation
let ref: string
let base: string
let listBans: () => Promise<string[]>
let stores: Stores
let vars: { proxy: string; bucket: string; control: string }
const serve = (body: string) => `Deno.serve(async (request, info) => { ${body} })`

beforeAll(async () => {
  installation = await startInstallation({ serve: serveLikeStart })
  const storage = await installation.newStorage()
  ref = storage.ref
  listBans = async () => {
    const { body } = await storage.organization.owner.post(`/v1/projects/${ref}/network-bans/retrieve`)
    return body.banned_ipv4_addresses
  }
  base = new URL(`/p/${ref}/functions/v1/`, storage.url).href
  const { config } = installation.ctxAt()
  const s3 = {
    endpoint: config.S3_ENDPOINT,
    bucket: config.S3_BUCKET,
    accessKeyId: config.S3_ACCESS_KEY_ID,
    secretAccessKey: config.S3_SECRET_ACCESS_KEY,
  }
  stores = { db: installation.control, encryptionKey: config.ENCRYPTION_KEY, s3 }
  vars = { proxy: config.NEON_PROXY ?? '', bucket: config.S3_ENDPOINT, control: new URL(config.DATABASE_URL).port }
})
afterAll(() => installation.stop())

/** `logIn(user)` tries a wrong password at the address of SUPABASE_DB_URL, and answers with the gateway's error. */
const WRONG_LOGIN = `import net from 'node:net'
const int32 = (value) => { const bytes = Buffer.alloc(4); bytes.writeInt32BE(value); return bytes }
const withLength = (...parts) => { const body = Buffer.concat(parts); return Buffer.concat([int32(body.length + 4), body]) }
const password = (...parts) => Buffer.concat([Buffer.from('p'), withLength(...parts)])
async function logIn(user) {
  const { hostname, port } = new URL(Deno.env.get('SUPABASE_DB_URL'))
  const socket = net.connect(Number(port), hostname)
  const ended = Promise.withResolvers()
  let received = Buffer.alloc(0)
  const answer = (body) => {
    if (body.readInt32BE(0) === 10) {
      const first = 'n,,n=,r=abc'
      socket.write(password(Buffer.from('SCRAM-SHA-256\\0'), int32(first.length), Buffer.from(first)))
    } else {
      const [nonce] = String(body.subarray(4)).split(',')
      socket.write(password(Buffer.from('c=biws,' + nonce + ',p=' + Buffer.alloc(32).toString('base64'))))
    }
  }
  socket.on('data', (chunk) => {
    received = Buffer.concat([received, chunk])
    while (received.length >= 5 && received.length > received.readInt32BE(1)) {
      const [type, body] = [received[0], received.subarray(5, received.readInt32BE(1) + 1)]
      received = received.subarray(received.readInt32BE(1) + 1)
      if (type === 69) ended.resolve(String(body).split('\\0').find((field) => field.startsWith('M'))?.slice(1))
      else answer(body)
    }
  })
  socket.on('error', (error) => ended.resolve(error.message))
  socket.on('close', () => ended.resolve('closed'))
  socket.write(withLength(int32(196608), Buffer.from('user\\0' + user + '\\0database\\0postgres\\0\\0')))
  const message = await ended.promise
  socket.destroy()
  return message
}`

async function deploy(body: string, top = '') {
  const { slug, id } = await putFunction(ref, `${top}\n${serve(body)}`, {}, stores)
  return { url: base + slug, id }
}

async function jsonOf(body: string, top?: string) {
  const response = await fetch((await deploy(body, top)).url)
  return response.json()
}

describe('the egress of a function', () => {
  it('reaches no address that is not public', async () => {
    const { port } = new URL(vars.bucket)
    const hosts = ['127.0.0.1', 'localhost', '127.1', '[::1]', '[::ffff:127.0.0.1]', '0.0.0.0', '[::]', 'a.localhost']
    const urls = [
      ...hosts.map((host) => `http://${host}:${port}/`),
      `${vars.proxy}/sql`,
      ...['10.0.0.1', '169.254.169.254', '192.168.0.1', '[fd00::1]', '0x7f.1', '2130706433'].map(
        (host) => `http://${host}/`,
      ),
    ]
    const reached = await jsonOf(`const reached = []
      for (const url of ${JSON.stringify(urls)}) await fetch(url, { signal: AbortSignal.timeout(2000) }).then(() => reached.push(url), () => {})
      return Response.json(reached)`)
    expect(reached).toEqual([])
  })

  it('opens no socket to one either, nor to mail ports', async () => {
    const targets = [
      `127.0.0.1:${new URL(vars.bucket).port}`,
      `localhost:${new URL(vars.proxy).port}`,
      // The name of DATABASE_HOST leads to the projects' own databases.
      `localhost:${vars.control}`,
      '10.0.0.1:80',
      '192.0.2.1:25',
      'example.com:587',
    ]
    const answers = await jsonOf(
      `const answers = []
      for (const target of ${JSON.stringify(targets)}) {
        const socket = connect(target)
        socket.closed.catch(() => {})
        const writer = socket.writable.getWriter()
        await writer.write(new Uint8Array([0, 0, 0, 8, 4, 210, 22, 47])).catch(() => {})
        const late = new Promise((resolve) => setTimeout(() => resolve('late'), 2000))
        const read = socket.readable.getReader().read().then(({ done }) => done ? 'ended' : 'opened', (error) => error.message)
        answers.push(await Promise.race([read, late]))
      }
      return Response.json(answers)`,
      `import { connect } from 'cloudflare:sockets'`,
    )
    expect(answers).toEqual(targets.map(() => 'ended'))
  })

  it('fetches from no mail ports', async () => {
    const urls = ['http://192.0.2.1:25/', 'https://example.com:587/']
    const errors = await jsonOf(`const errors = []
      for (const url of ${JSON.stringify(urls)})
        errors.push(await fetch(url, { signal: AbortSignal.timeout(2000) }).then(() => 'reached', ({ message }) => message))
      return Response.json(errors)`)
    expect(errors).toEqual([25, 587].map((port) => expect.stringContaining(`port ${port} not allowed`)))
  })

  it('reaches the database of SUPABASE_DB_URL', async () => {
    const answer = await jsonOf(
      `const { hostname, port } = new URL(Deno.env.get('SUPABASE_DB_URL'))
      const socket = net.connect(Number(port), hostname)
      socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]))
      const answer = await new Promise((resolve, reject) => { socket.on('data', (data) => resolve(String(data))); socket.on('error', reject) })
      socket.destroy()
      return Response.json(answer)`,
      `import net from 'node:net'`,
    )
    expect(['N', 'S']).toContain(answer)
    const connectionString = (await jsonOf(`return Response.json(Deno.env.get('SUPABASE_DB_URL'))`)) as string
    const client = new pg.Client({ connectionString })
    await client.connect()
    const { rows } = await client.query('select current_user as role, current_database() as database')
    await client.end()
    expect(rows).toEqual([{ role: 'postgres', database: 'postgres' }])
  })

  it('logs in to no other database, and its wrong passwords lock out nobody', async () => {
    const other = await installation.newStorage()
    const attack = await deploy(
      `const answers = []
      for (let n = 0; n < 10; n++) answers.push(await logIn('postgres.${other.ref}'))
      for (let n = 0; n < 11; n++) answers.push(await logIn('postgres.${ref}'))
      return Response.json([...answers, await logIn('pilothouse.control')])`,
      WRONG_LOGIN,
    )
    const answers = await (await fetch(attack.url)).json()
    const wrong = 'password authentication failed for user "postgres"'
    const unknown = 'Tenant or user not found'
    expect(answers).toEqual([...Array(10).fill(unknown), ...Array(11).fill(wrong), unknown])

    const { slug } = await putFunction(
      other.ref,
      `${WRONG_LOGIN}\nDeno.serve(async () => Response.json(await logIn('postgres.${other.ref}')))`,
      {},
      stores,
    )
    expect(await (await fetch(base.replace(ref, other.ref) + slug)).json()).toBe(wrong)
    expect(await listBans()).toEqual([])
    const connectionString = (await jsonOf(`return Response.json(Deno.env.get('SUPABASE_DB_URL'))`)) as string
    const client = new pg.Client({ connectionString })
    await client.connect()
    await client.end()
  })

  it('leaves no error of a read that was pending when the program closed its socket', async () => {
    const { url, id } = await deploy(
      `const { hostname, port } = new URL(Deno.env.get('SUPABASE_DB_URL'))
      const socket = connect({ hostname, port: Number(port) })
      const reader = socket.readable.getReader()
      await socket.writable.getWriter().write(new Uint8Array([0, 0, 0, 8, 4, 210, 22, 47]))
      await reader.read()
      const listen = async () => { for (;;) await reader.read() }
      listen()
      await socket.close()
      Promise.reject(new TypeError('nobody waited'))
      return new Response('x')`,
      `import { connect } from 'cloudflare:sockets'`,
    )
    expect(await (await fetch(url)).text()).toBe('x')
    const lines = await vi.waitFor(async () => {
      const [row] = await invocationsOf(id, stores)
      expect(row?.console).toContainEqual(expect.anything())
      return row?.console
    }, WAIT)
    expect(lines).toMatchObject([{ level: 'error', message: expect.stringContaining('nobody waited') }])
  })

  it('reaches the installation, like any caller of its public address', async () => {
    const found =
      await jsonOf(`const url = Deno.env.get('SUPABASE_URL'), key = Deno.env.get('SUPABASE_SERVICE_ROLE_KEY')
      const headers = { authorization: 'Bearer ' + key, 'content-type': 'application/json' }
      const made = await fetch(url + '/storage/v1/bucket', { method: 'POST', headers, body: JSON.stringify({ name: 'from-inside' }) })
      const list = await (await fetch(url + '/storage/v1/bucket', { headers })).json()
      const api = await fetch(new URL('/v1/projects', url), { headers })
      return Response.json([made.status, list.map(({ name }) => name).includes('from-inside'), api.status])`)
    expect(found).toEqual([200, true, 401])
  })
})

describe('the resources of callers and programs', () => {
  extended('limit the simultaneous calls of one function, with an error beyond', async () => {
    const { url } = await deploy(
      `if (request.url.includes('wait')) await new Promise((resolve) => setTimeout(resolve, 25_000)); return new Response('x')`,
    )
    expect((await fetch(url)).status).toBe(200)
    const waiting = Array.from({ length: 500 }, () => {
      const call = request(`${url}?wait`, { agent: false })
      call.on('error', () => {})
      call.end()
      return call
    })
    await vi.waitFor(async () => expect((await fetch(url)).status).toBe(546), WAIT)
    for (const call of waiting) call.destroy()
    await vi.waitFor(async () => expect((await fetch(url)).status).toBe(200), WAIT)
  })
})

describe('a function on the wire', () => {
  it('opens sockets that use no capacity of other calls', async () => {
    const { url } = await deploy(
      `if (!request.headers.has('upgrade')) return new Response('x')
      const { socket, response } = Deno.upgradeWebSocket(request); socket.onmessage = () => {}; return response`,
    )
    const sockets: WebSocket[] = []
    // Each socket uses capacity until it is open.
    for (let portion = 0; portion < 6; portion++) {
      const more = Array.from({ length: 85 }, () => new WebSocket(url.replace('http', 'ws')))
      await Promise.all(more.map((socket) => once(socket, 'open')))
      sockets.push(...more)
    }
    expect((await fetch(url)).status).toBe(200)
    for (const socket of sockets) socket.terminate()
  })

  it('streams its request and its answer, both at once', async () => {
    const { url } = await deploy('return new Response(request.body)')
    const outgoing = request(url, { method: 'POST', agent: false })
    outgoing.write('one')
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage]
    expect(String((await once(incoming, 'data'))[0])).toBe('one')
    outgoing.write('two')
    expect(String((await once(incoming, 'data'))[0])).toBe('two')
    outgoing.end()
    await once(incoming, 'end')
  })

  it('learns that the reader of a stream has left', async () => {
    const { url } = await deploy(
      `if (request.url.endsWith('?gone')) return Response.json(gone)
      let timer
      const body = new ReadableStream({
        start(controller) { timer = setInterval(() => controller.enqueue(new TextEncoder().encode('tick')), 50) },
        cancel() { clearInterval(timer); gone = true },
      })
      return new Response(body)`,
      'let gone = false',
    )
    const outgoing = request(url, { agent: false })
    outgoing.end()
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage]
    await once(incoming, 'data')
    incoming.destroy()
    await vi.waitFor(async () => expect(await (await fetch(`${url}?gone`)).json()).toBe(true), {
      ...WAIT,
      timeout: WAIT_MS,
    })
  })
})
