import { createHash, createHmac, pbkdf2Sync } from 'node:crypto'
import type { Duplex } from 'node:stream'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { authentication, int32, message, text } from '../../host/gateway/messages.ts'
import { mockVerifier, parseVerifier, ScramExchange } from '../../host/gateway/scram.ts'
import { scramVerifier } from '../../src/engine/scram.ts'
import type { TestGateway } from './gateway.ts'
import {
  dial,
  logIn,
  OTHER,
  openGateway,
  PASSWORD,
  query,
  REF,
  receive,
  receiveError,
  startServer,
  startup,
} from './gateway.ts'

let server: Awaited<ReturnType<typeof startServer>>
let gateway: TestGateway
let port: number

beforeAll(async () => {
  server = await startServer()
  await server.sql(`
    create role "Odd.name" login password '${PASSWORD}';
    create role expired login password '${PASSWORD}' valid until '2020-01-01';
    create role current login password '${PASSWORD}' valid until '2999-01-01';
    create role closed nologin password '${PASSWORD}';
    create role super superuser login password '${PASSWORD}';
    create role without login;
    create role cli_login_abcdefgh login password '${PASSWORD}';
    comment on role cli_login_abcdefgh is '{"networks":["10.0.0.0/8"]}';
  `)
  gateway = await openGateway({ ...server, limits: { failures: 1000 } })
  port = gateway.port
})
afterAll(async () => {
  await gateway?.stop()
  await server?.remove()
})

const asRole = (role: string) => query({ port, user: `${role}.${REF}` }, 'select current_user as role')
const wrongPassword = (role: string) => ({
  severity: 'FATAL',
  code: '28P01',
  message: `password authentication failed for user "${role}"`,
})

it.each(['postgres', 'Odd.name', 'current'])('admits %s with the password', async (role) => {
  expect(await asRole(role)).toEqual([{ role }])
})

it.each([
  'expired',
  'closed',
  'super',
  'without',
  'unknown',
  'supabase_admin',
  'supabase_storage_admin',
  'supabase_read_only_user',
  'x'.repeat(70),
])('answers %s like a wrong password', async (role) => {
  await expect(asRole(role)).rejects.toMatchObject(wrongPassword(role))
})

it('refuses a wrong password', async () => {
  for (const password of ['wrong', `${PASSWORD} `]) {
    await expect(logIn({ port, password })).rejects.toMatchObject(wrongPassword('postgres'))
  }
})

describe('a password that is checked for the client', () => {
  const caller = { address: '127.0.0.1', isSecure: true, isTrusted: false }
  const check = (name: string, role: string) => gateway.authenticate(name, role, PASSWORD, caller)

  beforeAll(async () => {
    for (const iterations of [100_000, 100_001]) {
      const verifier = await scramVerifier(PASSWORD, iterations)
      await server.sql(`create role with_${iterations} login password '${verifier}'`)
    }
  })

  it('is refused if its verifier takes too many iterations, which only the client itself may compute', async () => {
    await check(REF, 'with_100000')
    await expect(check(REF, 'with_100001')).rejects.toMatchObject({ code: '28P01' })
    await expect(asRole('with_100001')).rejects.toThrow('SCRAM-SERVER-FIRST-MESSAGE: iteration count 100001')
  })

  it('does not wait for the checks of another instance', async () => {
    const ended: string[] = []
    const names = [...Array<string>(20).fill(REF), OTHER]
    await Promise.all(names.map((name) => check(name, 'with_100000').then(() => ended.push(name))))
    expect(ended.indexOf(OTHER)).toBeLessThan(10)
  })
})

describe('the exchange', () => {
  const hmac = (key: Buffer, text: string) => createHmac('sha256', key).update(text).digest()

  async function challenge(
    role: string,
    first = 'n,,n=,r=abc',
    at = port,
  ): Promise<{ socket: Duplex; answer: string }> {
    const socket = await dial(at)
    socket.write(startup({ user: `${role}.${REF}` }))
    const offer = await receive(socket)
    expect(offer.raw).toEqual(authentication(10, text('SCRAM-SHA-256', '')))
    socket.write(message('p', text('SCRAM-SHA-256'), int32(first.length), Buffer.from(first)))
    const { type, body } = await receive(socket)
    return { socket, answer: type === 'R' ? body.toString('utf8', 4) : body.toString('utf8') }
  }

  /** The final message of a client that answers the challenge with the password. */
  function finalMessage(challenge: string, password: string): string {
    const [, nonce = '', salt = '', rounds] = /^r=(.*),s=(.*),i=(\d+)$/.exec(challenge) ?? []
    const salted = pbkdf2Sync(password, Buffer.from(salt, 'base64'), Number(rounds), 32, 'sha256')
    const clientKey = hmac(salted, 'Client Key')
    const storedKey = createHash('sha256').update(clientKey).digest()
    const signature = hmac(storedKey, `n=,r=abc,${challenge},c=biws,r=${nonce}`)
    return `c=biws,r=${nonce},p=${Buffer.from(clientKey.map((byte, n) => byte ^ (signature[n] ?? 0))).toString('base64')}`
  }

  it('does not reveal whether a role exists', async () => {
    const salt = async (role: string) => {
      const { socket, answer } = await challenge(role)
      socket.destroy()
      expect(answer).toMatch(/^r=abc[\w+/]{24},s=[\w+/]{22}==,i=4096$/)
      return answer.split(',')[1]
    }
    expect(await salt('unknown')).toBe(await salt('unknown'))
    expect(await salt('unknown')).not.toBe(await salt('without'))
    expect(await salt('postgres')).toBe(await salt('postgres'))
  })

  it('refuses channel binding, other identities and malformed messages', async () => {
    for (const first of [
      'p=tls-server-end-point,,n=,r=abc',
      'n,a=postgres,n=,r=abc',
      'n,,m=x,n=,r=abc',
      'n,,n=,r=',
      'x',
    ]) {
      const { socket, answer } = await challenge('postgres', first)
      expect(answer).toContain('C08P01')
      socket.destroy()
    }
  })

  it('refuses a final message with another nonce or binding', async () => {
    for (const final of [
      (nonce: string) => `c=biws,r=${nonce}x,p=${'A'.repeat(43)}=`,
      (nonce: string) => `c=eSws,r=${nonce},p=${'A'.repeat(43)}=`,
      (nonce: string) => `c=biws,r=${nonce},p=AAAA`,
    ]) {
      const { socket, answer } = await challenge('postgres')
      const nonce = answer.slice(2, answer.indexOf(','))
      socket.write(message('p', Buffer.from(final(nonce))))
      expect(await receiveError(socket)).toMatchObject({ C: '08P01' })
      socket.destroy()
    }
  })

  it('accepts a client that supports channel binding but sees no offer', async () => {
    const { answer, socket } = await challenge('postgres', 'y,,n=,r=abc')
    expect(answer).toMatch(/^r=abc/)
    socket.destroy()
  })

  it('refuses messages of another type, and long ones', async () => {
    for (const bytes of [message('Q', text('select 1')), message('p', Buffer.alloc(5000))]) {
      const socket = await dial(port)
      socket.write(startup({ user: `postgres.${REF}` }))
      await receive(socket)
      socket.write(bytes)
      expect(await receiveError(socket)).toMatchObject({ C: '08P01' })
      socket.destroy()
    }
  })

  it('checks no proof of an address that was banned after the challenge', async () => {
    await server.sql(`create role guessed login password '${PASSWORD}'`)
    const address = '192.0.2.77'
    const banning = await openGateway({ ...server, limits: { failures: 2 } })
    try {
      const guesses = []
      const from = await banning.openPort({ address })
      for (let n = 0; n < 3; n++) guesses.push(await challenge('guessed', 'n,,n=,r=abc', from))
      const codes = []
      for (const { socket, answer } of guesses) {
        socket.write(
          message('p', Buffer.from(finalMessage(answer, guesses.at(-1)?.socket === socket ? PASSWORD : 'x'))),
        )
        const { type, body } = await receive(socket)
        codes.push(type === 'E' ? /C(\w{5})/.exec(body.toString('latin1'))?.[1] : type)
        socket.destroy()
      }
      expect(codes).toEqual(['28P01', '28P01', '28000'])
    } finally {
      await banning.stop()
    }
  })

  it('computes the example of RFC 7677', () => {
    const salted = pbkdf2Sync('pencil', Buffer.from('W22ZaJ0SNY7soEsUEjb6gQ==', 'base64'), 4096, 32, 'sha256')
    const storedKey = createHash('sha256').update(hmac(salted, 'Client Key')).digest()
    const keys = `${storedKey.toString('base64')}:${hmac(salted, 'Server Key').toString('base64')}`
    const verifier = parseVerifier(`SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$${keys}`)
    if (!verifier) throw new Error('the verifier was not understood')
    const exchange = new ScramExchange(verifier, '%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0')
    expect(exchange.begin('n,,n=user,r=rOprNGfwEbeRWgbNEkqO')).toBe(
      'r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096',
    )
    const final = 'c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p='
    expect(exchange.finish(`${final}dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=`)).toBe(
      'v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=',
    )
    expect(exchange.finish(`${final}dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVA=`)).toBeUndefined()
  })

  it('accepts only verifiers of SCRAM-SHA-256, and a mock matches no password', () => {
    for (const stored of ['md5abc', '', 'SCRAM-SHA-256$0:aa$b:c']) expect(parseVerifier(stored)).toBeUndefined()
    const exchange = new ScramExchange(mockVerifier('secret', 'role'))
    const nonce = exchange.begin('n,,n=,r=abc').slice(2).split(',')[0]
    expect(exchange.finish(`c=biws,r=${nonce},p=${'A'.repeat(43)}=`)).toBeUndefined()
  })
})

it('admits temporary logins only from their own networks', async () => {
  const user = `cli_login_abcdefgh.${REF}`
  await expect(logIn({ port, user })).rejects.toMatchObject({
    code: '28000',
    message: expect.not.stringContaining('10.0.0.0'),
  })
  const inside = await gateway.openPort({ address: '::ffff:10.1.2.3' })
  expect(await query({ port: inside, user }, 'select 1 as one')).toEqual([{ one: 1 }])
})

it('reads no long comment of a role', async () => {
  await server.sql(`create role commented login password '${PASSWORD}'`)
  await server.sql(`comment on role commented is '[${'{},'.repeat(1_000_000)}{}]'`)
  const rows = vi.spyOn(server.get(REF).admin, 'rows')
  expect(await asRole('commented')).toEqual([{ role: 'commented' }])
  const read = await Promise.all(rows.mock.results.map(({ value }) => value))
  rows.mockRestore()
  expect(JSON.stringify(read)).toContain('SCRAM-SHA-256')
  expect(JSON.stringify(read).length).toBeLessThan(10_000)
})

it('serves the control database to its own role, from this machine', async () => {
  const control = { user: 'pilothouse.control' }
  expect(await query({ port, ...control }, 'select current_user as role')).toEqual([{ role: 'pilothouse' }])
  await expect(logIn({ port, user: 'postgres.control' })).rejects.toMatchObject(wrongPassword('postgres'))
  const outside = await gateway.openPort({ address: '192.0.2.1' })
  await expect(logIn({ port: outside, ...control })).rejects.toMatchObject({ code: 'XX000' })
})

it('wakes the instance while the client waits', async () => {
  await server.sleep()
  let wake = () => {}
  server.holdWake(new Promise<void>((resolve) => (wake = resolve)))
  const waiting = query({ port }, 'select 1 as one')
  await expect.poll(() => server.get(REF).state()).toBe('starting')
  wake()
  expect(await waiting).toEqual([{ one: 1 }])
})

it('resumes a paused instance only by a login that is allowed', async () => {
  const other = server.get(OTHER)
  const user = `postgres.${OTHER}`
  await other.update({ isPaused: true, access: { ssl: false, networks: ['10.0.0.0/8'] } })
  await expect(logIn({ port, user })).rejects.toThrow('allow_list')
  await other.update({ access: { ssl: false, networks: null } })
  await expect(logIn({ port, user, password: 'wrong' })).rejects.toMatchObject(wrongPassword('postgres'))
  const inside = await gateway.openPort({ address: '10.1.2.3' })
  const temporary = logIn({ port: inside, user: `cli_login_abcdefgh.${OTHER}` })
  await expect(temporary).rejects.toMatchObject({ code: '57P03', message: 'The project is paused' })
  expect(other.record).toMatchObject({ isPaused: true })
  expect(await query({ port, user }, 'select 1 as one')).toEqual([{ one: 1 }])
  expect(other.record).toMatchObject({ isPaused: false, isWoken: true })
})

it('passes large results and inputs unchanged', async () => {
  const client = await logIn({ port })
  const input = 'x'.repeat(5_000_000)
  const { rows } = await client.query(`select $1::text as echo, repeat('y', 20000000) as made`, [input])
  expect([rows[0].echo === input, rows[0].made.length]).toEqual([true, 20_000_000])
  await client.end()
})

it('ends a session with the server, and passes on its last messages', async () => {
  const client = await logIn({ port })
  const ended = new Promise<pg.DatabaseError>((resolve) =>
    client.on('error', (error) => resolve(error as pg.DatabaseError)),
  )
  await server.sleep()
  expect(await ended).toMatchObject({ code: '57P01' })
  await expect.poll(() => gateway.sessions(REF)).toBe(0)
})
