import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { afterEach, expect, it, onTestFinished, vi } from 'vitest'
import { inTransaction } from '../../../src/platform/db/client.ts'

afterEach(() => vi.useRealTimers())

it('a transaction is given up if no connection opens in time, and keeps none that opens later', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const proxy = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })

  const work = vi.fn()
  const transaction = inTransaction({ url: 'postgresql://user:password@database/name', proxy }, work)
  const failure = expect(transaction).rejects.toMatchObject({ code: 'service_unavailable.control_database' })
  const [, socket] = (await once(server, 'upgrade')) as [unknown, Socket]
  const closed = once(socket.resume(), 'end')
  vi.advanceTimersByTime(10_000)
  await failure
  vi.useRealTimers()
  await closed
  socket.destroy()
  expect(work).not.toHaveBeenCalled()
})
