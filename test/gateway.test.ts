import { once } from 'node:events'
import { connect as connectTcp } from 'node:net'
import { connect as connectTls } from 'node:tls'
import pg from 'pg'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { newOrganization } from './api.ts'
import { asAdmin, withClient } from './engine/copy-projects.ts'
import { newProject, PASSWORD } from './projects.ts'

const host = inject('databaseHost')
const port = inject('databasePort')
let user: string
beforeAll(async () => {
  user = `p_${await newProject(await newOrganization())}`
})

async function entered(database: string, more: Partial<pg.ClientConfig> = {}): Promise<pg.Client> {
  const client = new pg.Client({ host, port, user, password: PASSWORD, database, ...more })
  await client.connect()
  return client
}

/** As Postgres sees it. */
async function whereIs(client: pg.Client): Promise<unknown> {
  const { rows } = await client.query('select pg_backend_pid() as pid')
  const seen = `select datname as database, ssl from pg_stat_activity join pg_stat_ssl using (pid) where pid = $1`
  return withClient(asAdmin('postgres'), async (admin) => (await admin.query(seen, [rows[0].pid])).rows[0])
}

const TLS = { ssl: { rejectUnauthorized: false } }

describe('who asks for the database postgres with the credentials of a project', () => {
  it.each([
    ['without TLS', {}, false],
    ['with TLS', TLS, true],
    ['with TLS, the password bound to the certificate', { ...TLS, enableChannelBinding: true }, true],
  ])('gets to the database of the project: %s', async (_, more, ssl) => {
    expect(await withClient(entered('postgres', more), whereIs)).toEqual({ database: user, ssl })
  })

  it('can cancel what it does there', async () => {
    await withClient(entered('postgres'), async (client) => {
      const { processID, secretKey } = client as unknown as { processID: number; secretKey: number }
      const sleep = client.query('select pg_sleep(600)').catch((error) => error)
      const active = `select from pg_stat_activity where pid = $1 and state = 'active'`
      await withClient(asAdmin('postgres'), (admin) =>
        vi.waitFor(async () => expect((await admin.query(active, [processID])).rows).toHaveLength(1), {
          timeout: 60_000,
        }),
      )
      const request = Buffer.alloc(16)
      for (const [n, value] of [16, 80_877_102, processID, secretKey].entries()) request.writeInt32BE(value, n * 4)
      connectTcp({ host, port }).end(request)
      expect(await sleep).toMatchObject({ code: '57014' })
    })
  })
})

it('everybody else gets where he asks to be, or is refused by Postgres', async () => {
  expect(await withClient(entered(user), whereIs)).toMatchObject({ database: user })
  const { username, password } = new URL(inject('adminUrl'))
  const superuser = entered('postgres', { user: username, password })
  expect(await withClient(superuser, whereIs)).toMatchObject({ database: 'postgres' })
  await expect(entered('template1')).rejects.toMatchObject({ code: '42501' })
  await expect(entered('postgres', { password: 'wrong' })).rejects.toMatchObject({ code: '28P01' })
})

it('takes TLS that begins at once', async () => {
  const socket = connectTls({ host, port, rejectUnauthorized: false, ALPNProtocols: ['postgresql'] })
  await once(socket, 'secureConnect')
  expect(socket.alpnProtocol).toBe('postgresql')
  const body = Buffer.from(`user\0${user}\0database\0postgres\0\0`)
  const head = Buffer.alloc(8)
  head.writeInt32BE(8 + body.length, 0)
  head.writeInt32BE(196_608, 4)
  socket.write(Buffer.concat([head, body]))
  const [answer] = (await once(socket, 'data')) as [Buffer]
  expect(answer.toString('latin1')).toMatch(/^R.*SCRAM-SHA-256-PLUS/s)
  socket.destroy()
})

it.each([
  ['no Postgres at all', Buffer.from('GET / HTTP/1.1\r\n\r\n')],
  ['a message that is too long', Buffer.from([0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0])],
  ['a message of no length', Buffer.alloc(8)],
])('closes what is %s, and goes on', async (_, bytes) => {
  const socket = connectTcp({ host, port })
  socket.write(bytes)
  await once(socket.resume(), 'close')
  expect(await withClient(entered('postgres'), whereIs)).toMatchObject({ database: user })
})
