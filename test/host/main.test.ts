import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { freePorts } from '../../dev/ports.ts'
import { startS3 } from '../../dev/s3.ts'
import { Archive } from '../../host/backups/archive.ts'
import { s3Store } from '../../host/backups/store.ts'
import { listenOnFreePort } from '../support/listen.ts'
import { newHostFolder } from './host-folder.ts'

const folders: string[] = []
afterAll(async () => {
  for (const folder of folders) await rm(folder, { recursive: true, force: true })
})

const ARCHIVE = {
  ARCHIVE_KEY: 'a key of the test, of enough letters',
  S3_ENDPOINT: 'http://127.0.0.1:9',
  S3_BUCKET: 'archive',
  S3_ACCESS_KEY_ID: 'id',
  S3_SECRET_ACCESS_KEY: 'secret',
}

const credentials = { accessKeyId: 'a'.repeat(20), secretAccessKey: 'b'.repeat(40) }
const s3 = await startS3({ buckets: ['archive'], ...credentials })
afterAll(s3.stop)
const BUCKET = {
  ...ARCHIVE,
  S3_ENDPOINT: s3.endpoint,
  S3_ACCESS_KEY_ID: credentials.accessKeyId,
  S3_SECRET_ACCESS_KEY: credentials.secretAccessKey,
}
const UNREACHABLE = { level: 'error', event: 'archive_unreachable', error: expect.any(String) }

/** Settings of a bucket at a web server that answers every request with this status. */
async function answering(status: number) {
  const server = createServer((_, res) => res.writeHead(status, { 'content-type': 'text/html' }).end('<html></html>'))
  afterAll(() => void server.close())
  return { ...ARCHIVE, S3_ENDPOINT: `http://127.0.0.1:${await listenOnFreePort(server)}` }
}

const OUT_OF_ORDER = await answering(503)
const NO_BUCKET = await answering(200)

/** Runs `npm run host` with these settings. */
async function run(settings: Record<string, string | undefined>) {
  const folder = await newHostFolder()
  folders.push(folder)
  const [HOST_PORT, POSTGRES_PORT] = (await freePorts(2)).map(String)
  const own = { HOST_KEY: 'a key of the test, of enough letters', HOST_FOLDER: folder, HOST_PORT, POSTGRES_PORT }
  const child = spawn('node', ['host/main.ts'], { env: { ...process.env, ...own, ...settings } })
  onTestFinished(() => void child.kill())
  const ended = once(child, 'close')
  let errors = ''
  child.stderr.on('data', (data: Buffer) => (errors += data))
  return { child, ended, errors: () => errors, own }
}

describe('a database host', () => {
  it.each([
    ['without an archive', {}, [{ event: 'host_started', archive: false }]],
    ['with an archive', BUCKET, [{ event: 'host_started', archive: true }]],
    ['while its bucket does not answer', ARCHIVE, [UNREACHABLE, { event: 'host_started', archive: true }]],
    ['while its bucket is out of order', OUT_OF_ORDER, [UNREACHABLE, { event: 'host_started', archive: true }]],
  ])('that starts %s logs that', async (_, settings, events) => {
    const { child, ended } = await run(settings)
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
    for (const event of events) expect(JSON.parse((await lines.next()).value ?? '')).toMatchObject(event)
    child.kill('SIGTERM')
    expect(await ended).toEqual([0, null])
  })

  it.each([
    ['an unknown bucket', { ...BUCKET, S3_BUCKET: 'unknown' }, 'HTTP 404 NoSuchBucket'],
    ['a wrong secret', { ...BUCKET, S3_SECRET_ACCESS_KEY: 'another' }, 'HTTP 403 SignatureDoesNotMatch'],
    ['an endpoint with another path', { ...BUCKET, S3_ENDPOINT: new URL(s3.endpoint).origin }, 'HTTP 404 Error'],
    ['an endpoint that is not S3', NO_BUCKET, 'it does not speak S3'],
  ])('does not start with %s of its archive', async (_, settings, reason) => {
    const { ended, errors } = await run(settings)
    expect(await ended).toEqual([1, null])
    expect(errors()).toBe(
      `The bucket of the archive cannot be used (${reason}): check S3_ENDPOINT, S3_REGION, S3_BUCKET, S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY.\n`,
    )
  })

  it('does not start with another ARCHIVE_KEY than the one that sealed the objects of the bucket', async () => {
    const store = s3Store({ endpoint: s3.endpoint, region: 'auto', bucket: 'archive', ...credentials })
    const starts = async (more = {}) => {
      const { child, ended } = await run({ ...BUCKET, ...more })
      const [line] = await once(createInterface(child.stdout), 'line')
      expect(JSON.parse(line)).toMatchObject({ event: 'host_started', archive: true })
      child.kill('SIGTERM')
      expect(await ended).toEqual([0, null])
    }
    await starts({ ARCHIVE_KEY: 'a key that has sealed nothing so far' })
    await store.put('backups/a/base/0.json', Readable.from([Buffer.alloc(1_000, 'damaged')]))
    await new Archive(store, Buffer.from(ARCHIVE.ARCHIVE_KEY)).putText('backups/a/base/1.json', '{}')
    const { HOST_FOLDER } = (await run({ HOST_KEY: undefined })).own
    await mkdir(join(HOST_FOLDER, 'instances', 'a'.repeat(20)), { recursive: true })
    for (const folder of [{}, { HOST_FOLDER }]) {
      const { ended, errors } = await run({ ...BUCKET, ...folder, ARCHIVE_KEY: 'another key of the test, of letters' })
      expect(await ended).toEqual([1, null])
      expect(errors()).toBe(
        'ARCHIVE_KEY is not the key that the bucket archive was used with (backups/a/base/0.json is not an object of an archive): set that key, or use a new bucket.\n',
      )
    }
    await starts()
  })

  it('starts with databases whose archive is refused', async () => {
    const { HOST_FOLDER } = (await run({ HOST_KEY: undefined })).own
    await mkdir(join(HOST_FOLDER, 'instances', 'a'.repeat(20)), { recursive: true })
    const { child } = await run({ ...BUCKET, S3_BUCKET: 'nobucket', HOST_FOLDER })
    const [line] = await once(createInterface(child.stdout), 'line')
    expect(JSON.parse(line)).toMatchObject(UNREACHABLE)
  })

  it.each([
    ['S3_ENDPOINT, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY, ARCHIVE_KEY', { S3_BUCKET: 'archive' }],
    ['ARCHIVE_KEY', { ...ARCHIVE, ARCHIVE_KEY: '' }],
    ['S3_ENDPOINT', { ...ARCHIVE, S3_ENDPOINT: '' }],
  ])('does not start without %s if the rest of the archive is set', async (missing, settings) => {
    const { ended, errors } = await run(settings)
    expect(await ended).toEqual([1, null])
    expect(errors()).toMatch(/^Missing /)
    for (const name of missing.split(', ')) expect(errors().split(':')[0]).toContain(name)
    expect(errors().trim().split('\n')).toHaveLength(1)
  })

  it.each([
    [{ HOST_KEY: undefined }, ['HOST_KEY is missing: `openssl rand -hex 32` generates one.']],
    [
      { HOST_KEY: 'short', HOST_PORT: '99999' },
      [
        'HOST_KEY cannot be used: must have at least 32 characters: `openssl rand -hex 32` generates one.',
        'HOST_PORT=99999 cannot be used: Too big: expected number to be <=65535.',
      ],
    ],
    [
      { HOST_PORT: '15000', POSTGRES_PORT: '15000' },
      ['HOST_PORT=15000 cannot be used: must differ from POSTGRES_PORT.'],
    ],
    [{ POSTGRES_ADDRESS: 'localhost' }, ['POSTGRES_ADDRESS=localhost cannot be used: must be an IP address.']],
    [
      { DATABASE_DOMAIN: 'http://x' },
      ['DATABASE_DOMAIN=http://x cannot be used: must be a host name in lower case, without a scheme and a port.'],
    ],
  ])('refuses %j with one line for each setting', async (settings, lines) => {
    const { ended, errors } = await run(settings)
    expect(await ended).toEqual([1, null])
    expect(errors().trim().split('\n')).toEqual(lines)
  })

  it('serves clients of Postgres at another address than its own API, if it is told so', async () => {
    const { child, own } = await run({ POSTGRES_ADDRESS: '127.0.0.2' })
    await once(createInterface(child.stdout), 'line')
    const isOpen = async (host: string, port: string | undefined) => {
      const socket = connect({ host, port: Number(port) })
      const answer = await once(socket, 'connect').then(
        () => true,
        () => false,
      )
      socket.destroy()
      return answer
    }
    expect(await isOpen('127.0.0.2', own.POSTGRES_PORT)).toBe(true)
    expect(await isOpen('127.0.0.2', own.HOST_PORT)).toBe(false)
    expect(await isOpen('127.0.0.1', own.POSTGRES_PORT)).toBe(false)
    expect(await isOpen('127.0.0.1', own.HOST_PORT)).toBe(true)
  })

  it('names the setting of a port that is in use, and the folder that another host uses', async () => {
    const first = await run({})
    await once(createInterface(first.child.stdout), 'line')
    const { HOST_FOLDER, HOST_PORT, POSTGRES_PORT } = first.own
    for (const [settings, line] of [
      [{ HOST_FOLDER }, `Another host uses ${HOST_FOLDER}: stop it first`],
      [{ HOST_PORT }, `HOST_PORT=${HOST_PORT} is in use: stop the program that listens there, or choose another port.`],
      [
        { POSTGRES_PORT },
        `POSTGRES_PORT=${POSTGRES_PORT} is in use: stop the program that listens there, or choose another port.`,
      ],
    ] as const) {
      const second = await run(settings)
      expect(await second.ended).toEqual([1, null])
      expect(second.errors()).toBe(`${line}\n`)
    }
    first.child.kill('SIGTERM')
    expect(await first.ended).toEqual([0, null])
  })
})
