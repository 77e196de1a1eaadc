import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { baseUrl, newOrganization } from '../../support/api.ts'
import { invocationsOf, putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'

let project: TestStorage
beforeAll(async () => {
  project = await newStorage(await newOrganization())
})

/** Connects a client to a function with the body, whose socket is `socket`. */
async function connected(body: string) {
  const { slug, id } = await putFunction(
    project.ref,
    `Deno.serve((request) => { const { socket, response } = Deno.upgradeWebSocket(request); ${body}; return response })`,
  )
  const url = new URL(`/p/${project.ref}/functions/v1/${slug}`, baseUrl)
  const client = new WebSocket(String(url).replace('http', 'ws'))
  const heard: unknown[] = []
  client.on('message', (data: Buffer, isBinary) => heard.push(isBinary ? [...data] : String(data)))
  await once(client, 'open')
  return { client, heard, id }
}

const printedBy = async (id: string) =>
  (await invocationsOf(id)).flatMap((row) => (row.console as { message: string }[]).map(({ message }) => message))

describe('the socket of a function', () => {
  it('yields bytes as a Blob, or as configured', async () => {
    const { client, heard } = await connected(`socket.onmessage = async ({ data }) => {
      const bytes = data instanceof Blob ? await data.arrayBuffer() : data
      socket.send([socket.binaryType, data.constructor.name, ...new Uint8Array(bytes)].join())
      socket.binaryType = 'neither'
      socket.binaryType = 'arraybuffer'
    }`)
    client.send(Buffer.from([1, 2]))
    await once(client, 'message')
    client.send(Buffer.from([3, 4]))
    await once(client, 'message')
    expect(heard).toEqual(['blob,Blob,1,2', 'arraybuffer,ArrayBuffer,3,4'])
    client.terminate()
  })

  it('sends the bytes of a Blob in order with other messages, as they were when it was sent', async () => {
    const { client, heard } = await connected(`socket.onmessage = () => {
      const [buffer, view] = [new ArrayBuffer(2), new Uint8Array([0, 7, 8]).subarray(1)]
      for (const data of ['one', new Blob([new Uint8Array([1, 2])]), buffer, view, 'two', new Blob(['']), new Blob(['x'])]) socket.send(data)
      new Uint8Array(buffer).fill(9)
      view.fill(9)
      socket.close(4001, 'enough')
    }`)
    client.send('go')
    const [code, reason] = await once(client, 'close')
    expect(heard).toEqual(['one', [1, 2], [0, 0], [7, 8], 'two', [], [120]])
    expect([code, String(reason)]).toEqual([4001, 'enough'])
  })

  it('has no error after a clean close', async () => {
    const { client, id } = await connected(`for (const kind of ['close', 'error']) {
        socket['on' + kind] = (event) => console.log('on', kind, event.code)
        socket.addEventListener(kind, (event) => console.log(kind, event.code))
      }
      socket.addEventListener('close', () => EdgeRuntime.waitUntil(new Promise((resolve) => setTimeout(resolve, 1500)).then(() => console.log('over'))))`)
    client.send('one')
    client.close(1000, 'enough')
    await vi.waitFor(async () => expect(await printedBy(id)).toContain('over'), WAIT)
    expect(await printedBy(id)).toEqual(['on close 1000', 'close 1000', 'over'])
  })
})

describe('a socket that the function opens', () => {
  let server: WebSocketServer
  beforeAll(async () => {
    server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
    server.on('connection', (socket) =>
      socket.on('message', (data, binary) => {
        socket.send(data, { binary })
        if (!binary) socket.close(1000)
      }),
    )
    await once(server, 'listening')
  })
  afterAll(() => server.close())

  it('sends the bytes of a Blob too, and has no error after a clean close', async () => {
    const { client, heard } =
      await connected(`const other = new WebSocket('ws://127.0.0.1:${(server.address() as { port: number }).port}/')
      other.onopen = () => { other.send(new Blob([new Uint8Array([1, 2])])); other.send('after') }
      other.onmessage = ({ data }) => { socket.send(data) }
      other.onerror = ({ message }) => socket.send('error ' + message)
      other.onclose = ({ code }) => { socket.send('close ' + code); setTimeout(() => socket.close(1000), 1500) }`)
    await once(client, 'close')
    expect(heard).toEqual([[1, 2], 'after', 'close 1000'])
  })
})
