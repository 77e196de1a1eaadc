import { execFile } from 'node:child_process'
import { createReadStream } from 'node:fs'
import { cp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { backup } from '../../dev/backup/backup-command.ts'
import { openKeys, sealKeys } from '../../dev/backup/keys.ts'
import { readManifest, writeManifest } from '../../dev/backup/manifest.ts'
import { openPlace } from '../../dev/backup/place.ts'
import { restore } from '../../dev/backup/restore-command.ts'
import { describeFailure } from '../../dev/lifetime.ts'
import { startS3 } from '../../dev/s3.ts'
import { openControlDatabase } from '../../dev/seed.ts'
import { targetDatabaseUrl } from '../../dev/target.ts'
import { hosts } from '../../src/model/tables/index.ts'
import { as, type Caller } from '../support/api.ts'
import { deploy } from '../support/deploys.ts'
import { type Machine, newMachine, WAIT } from '../support/machine.ts'
import { createProject, PASSWORD, untilStatus } from '../support/projects.ts'
import { startReceiver, withStatus } from '../support/receiver.ts'
import { clientOf } from '../support/storage.ts'
import { newEndpoint } from '../support/webhooks.ts'

const run = promisify(execFile)
const PASSPHRASE = 'a passphrase of the test'
const WRITES = 30
const S3_KEYS = { accessKeyId: 'a'.repeat(20), secretAccessKey: 'b'.repeat(40) }

let machine: Machine
let other: Machine
/** The folder of the backup. */
let folder: string
let bucket: { endpoint: string; stop(): Promise<void> }
let receiver: Awaited<ReturnType<typeof startReceiver>>
beforeAll(async () => {
  bucket = await startS3({ buckets: ['copies'], ...S3_KEYS })
  const aws = {
    AWS_ENDPOINT_URL: bucket.endpoint,
    AWS_REGION: 'auto',
    AWS_ACCESS_KEY_ID: S3_KEYS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: S3_KEYS.secretAccessKey,
  }
  const settings = { WEBHOOK_LOOPBACK: 'on', BACKUP_PASSPHRASE: PASSPHRASE, ...aws }
  machine = await newMachine(settings, inject('begun'))
  other = await newMachine(settings)
  folder = `${machine.folder}-backup`
  receiver = await startReceiver(withStatus(500))
})
afterAll(async () => {
  await machine.dispose()
  await other.dispose()
  receiver.close()
  await bucket.stop()
  for (const path of [folder, `${folder}.key`]) await rm(path, { recursive: true, force: true })
})

const command = (program: 'backup' | 'restore', args: string[], env: NodeJS.ProcessEnv) =>
  run('node', [`dev/${program}.ts`, ...args], { env })

const ownerOf = ({ credentials }: Machine): Caller => as(credentials().access_token, {}, credentials().base_url)

async function connect(connection: pg.ClientConfig) {
  const client = new pg.Client(connection)
  client.on('error', () => {})
  await client.connect()
  return client
}

const connectionOf = ({ env }: Machine, user: string) => ({
  ...{ host: '127.0.0.1', port: Number(env.POSTGRES_PORT), user, password: PASSWORD },
  database: 'postgres',
})

async function query(from: Machine, user: string, text: string) {
  const client = await connect(connectionOf(from, user))
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const filesOf = ({ credentials }: Machine, ref: string, key: string) => {
  const url = new URL(`/p/${ref}/storage/v1`, credentials().base_url).href
  return clientOf({ url } as Parameters<typeof clientOf>[0], key)
}

async function serviceKey(owner: Caller, ref: string): Promise<string> {
  const { body } = await owner.get(`/v1/projects/${ref}/api-keys?reveal=true`)
  return body.find(({ name }: { name: string }) => name === 'service_role').api_key
}

/** Returns the backups in the host's archive. */
const archived = (installation: Machine) => ofHost(installation, '/backups')

async function ofHost({ folder: data, env }: Machine, path: string): Promise<unknown> {
  const { HOST_KEY } = JSON.parse(await readFile(join(data, 'secrets.json'), 'utf8'))
  const headers = { authorization: `Bearer ${HOST_KEY}` }
  return (await fetch(`http://127.0.0.1:${env.PROXY_PORT}/host/v1${path}`, { headers })).json()
}

/** Adds only the row of a host that nobody can reach. */
async function addHost(name: string): Promise<void> {
  const { db, close } = openControlDatabase(await targetDatabaseUrl(machine.env))
  const place = { databaseHost: '127.0.0.1', databasePort: 9, region: 'us-east-1', addedAt: new Date() } as const
  await db.insert(hosts).values({ name, url: 'http://127.0.0.1:9', sealedKey: 'none', ...place })
  await close()
}

/**
 * Writes `n` to the bucket, then to the project, then to the control database, each after the one before is
 * acknowledged.
 */
async function startWriting(ref: string, key: string) {
  const project = await connect(connectionOf(machine, `postgres.${ref}`))
  const control = await connect({ connectionString: await targetDatabaseUrl(machine.env) })
  const files = filesOf(machine, ref, key).from('files')
  let written = 0
  let isOver = false
  const work = (async () => {
    while (!isOver) {
      const n = written + 1
      const { error } = await files.upload(`n-${n}`, `bytes of ${n}`)
      if (error) throw error
      await project.query('insert into written values ($1)', [n])
      await control.query('update projects set name = $1 where ref = $2', [`n-${n}`, ref])
      written = n
    }
  })()
  return {
    written: () => written,
    async end() {
      isOver = true
      await work
      await Promise.all([project.end(), control.end()])
    },
  }
}

describe('npm run backup and npm run restore', () => {
  it('copy a whole installation to another machine as it was at one moment of its work', async () => {
    await machine.started()
    const owner = ownerOf(machine)
    const place = { owner, slug: machine.credentials().organization_slug }
    const [ref, paused, broken] = await Promise.all([createProject(place), createProject(place), createProject(place)])
    await Promise.all([ref, paused, broken].map((each) => untilStatus(owner, each, 'ACTIVE_HEALTHY')))
    for (const each of [paused, broken]) expect((await owner.post(`/v1/projects/${each}/pause`)).status).toBe(200)
    await newEndpoint({ owner, base: `/v2/projects/${ref}/webhooks` }, { url: receiver.url })
    await deploy(owner, ref, { metadata: { verify_jwt: false } })
    const key = await serviceKey(owner, ref)
    await filesOf(machine, ref, key).createBucket('files')
    await query(machine, `postgres.${ref}`, 'create table written (n int primary key)')
    const region = { read_replica_region: 'us-east-1' }
    expect((await owner.post(`/v1/projects/${ref}/read-replicas/setup`, region)).status).toBe(201)
    const points = `/v1/projects/${ref}/database/backups/restore-point`
    // Restore points need the replica to exist.
    const point = async () => expect((await owner.post(points, { name: 'kept' })).status).toBe(201)
    await vi.waitFor(point, { ...WAIT, interval: 500 })
    const completed = expect.objectContaining({ status: 'AVAILABLE' })
    await vi.waitFor(async () => expect((await owner.get(points)).body).toEqual(completed), { ...WAIT, interval: 500 })
    await vi.waitFor(() => expect(receiver.received).not.toEqual([]), WAIT)
    for (const each of [paused, broken]) await untilStatus(owner, each, 'INACTIVE')
    await rm(join(machine.folder, 'host', 'instances', broken, 'data', 'global', 'pg_control'))

    const writer = await startWriting(ref, key)
    await vi.waitFor(() => expect(writer.written()).toBeGreaterThan(WRITES), WAIT)
    const before = writer.written()
    await writeFile(`${folder}.key`, `${PASSPHRASE}\n`)
    const taken = await command('backup', [folder, '--key-file', `${folder}.key`], machine.env).catch((error) => error)
    const atEnd = writer.written()
    await writer.end()
    expect(taken).toMatchObject({
      code: 1,
      stdout: expect.stringContaining(`Project ${broken}: left out (Postgres did not start`),
      stderr: expect.stringMatching(
        new RegExp(`^Incomplete: .* holds the installation as of \\d{4}-.* without the projects ${broken}\\.\n$`),
      ),
    })
    expect(atEnd).toBeGreaterThan(before)
    // The base backups that it made only for itself are gone.
    expect(await archived(machine)).toEqual([{ name: ref, id: expect.any(String) }])
    expect(await readFile(join(folder, 'keys.json'), 'utf8')).not.toContain(owner.token)
    await addHost('eu-1')
    const refused = command('backup', [`${folder}-2`], machine.env)
    await expect(refused).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('other hosts (eu-1)') })
    await machine.stopAll()

    const attempted = receiver.received.map(({ headers }) => headers['webhook-id'])
    receiver.received.length = 0
    receiver.answer(withStatus(200))
    const remote = openPlace('s3://copies/nightly', machine.env)
    for (const file of await filesIn(folder)) await remote.put(file, createReadStream(join(folder, file)))
    const manifest = await readManifest(remote)
    const [{ spec } = { spec: {} }] = manifest.instances
    const lost = { name: 'a'.repeat(20), backup: '1', isPaused: false, spec }
    await writeManifest(remote, { ...manifest, instances: [lost, ...manifest.instances] })
    const restored = await command('restore', ['s3://copies/nightly'], other.env).catch((error) => error)
    expect(restored).toMatchObject({
      code: 1,
      stdout: expect.stringContaining(`Project ${ref}: restored`),
      stderr: expect.stringContaining(`without the databases of ${broken}, ${lost.name}.`),
    })
    await cp(join(machine.folder, 'bundle'), join(other.folder, 'bundle'), { recursive: true })
    await other.started()

    const again = ownerOf(other)
    expect(again.token).toBe(owner.token)
    const { body: shown } = await again.get(`/v1/projects/${ref}`)
    const inControl = Number(shown.name.slice(2))
    const [rows] = await query(other, `postgres.${ref}`, 'select count(*)::int, max(n) as last from written')
    const objects = await query(other, `postgres.${ref}`, 'select name from storage.objects')
    expect(inControl).toBeGreaterThanOrEqual(before)
    expect(inControl).toBeLessThanOrEqual(atEnd)
    expect(rows.count).toBe(rows.last)
    expect(rows.last - inControl).toBeOneOf([0, 1])
    expect(objects.length - rows.last).toBeOneOf([0, 1])
    const files = filesOf(other, ref, key).from('files')
    for (const { name } of objects) {
      const { data } = await files.download(name)
      expect(await data?.text()).toBe(`bytes of ${name.slice(2)}`)
    }
    expect((await files.upload('after', 'restored')).error).toBeNull()
    expect(await serviceKey(again, ref)).toBe(key)
    expect(await (await fetch(new URL(`/p/${ref}/functions/v1/hello`, again.base))).text()).toBe('hello')
    expect((await again.get(points)).body).toEqual(completed)
    // The schedule may have made another one since the restore.
    expect(await archived(other)).toContainEqual({ name: ref, id: expect.any(String) })
    expect(JSON.stringify(await archived(other))).not.toContain(paused)
    expect((await again.get(`/v1/projects/${paused}`)).body.status).toBe('INACTIVE')
    expect(await ofHost(other, `/instances/${paused}`)).toMatchObject({ state: 'paused' })
    const { body: listed } = await again.get(`/v1/organizations/${place.slug}/projects`)
    const { databases } = listed.projects.find((each: { ref: string }) => each.ref === ref)
    await vi.waitFor(async () => {
      const [row] = await query(other, `postgres.${databases[1].identifier}`, 'select max(n) as last from written')
      expect(row).toEqual({ last: rows.last })
    }, WAIT)
    await vi.waitFor(() => {
      const delivered = receiver.received.map(({ headers }) => headers['webhook-id'])
      expect(attempted).toEqual(expect.arrayContaining([expect.toBeOneOf(delivered)]))
    }, WAIT)
    const certificate = join('host', 'tls', 'server.crt')
    expect(await readFile(join(other.folder, certificate))).toEqual(await readFile(join(machine.folder, certificate)))
    await other.stopAll()
  })

  describe('a restore', () => {
    const target = () => `${machine.folder}-target`
    const refuse = async (message: string, { args = [folder], env = {} }: Refused = {}) => {
      const asked = restore({ args, env: { ...machine.env, PILOTHOUSE_DATA: target(), ...env }, print: () => {} })
      expect(await asked.catch(describeFailure)).toBe(message)
      await expectNothing()
    }
    const expectNothing = async () => {
      expect(await readdir(target()).catch(() => [])).toEqual([])
      await rm(target(), { recursive: true, force: true })
    }

    it('that is refused ends with exit code 1 and one line', async () => {
      const env = { ...machine.env, PILOTHOUSE_DATA: target(), BACKUP_PASSPHRASE: 'another passphrase' }
      const stderr = 'The passphrase does not open the keys of this backup.\n'
      await expect(command('restore', [folder], env)).rejects.toMatchObject({ code: 1, stderr })
      await expectNothing()
    })

    it('refuses a backup with a changed, missing or unfinished file, and names the file', async () => {
      const [object = ''] = (await filesIn(folder)).filter((file) => file.includes('/storage/'))
      await changed(
        object,
        (bytes) => bytes.fill(0, 0, 1),
        () => refuse(isDamaged(object)),
      )
      await changed(
        object,
        (bytes) => bytes.subarray(1),
        () => refuse(isDamaged(object)),
      )
      await changed(object, undefined, () => refuse(`The backup is damaged: ${object} is missing.`))
      for (const file of ['objects.jsonl', 'keys.json', 'manifest.json']) {
        await changed(
          file,
          (bytes) => bytes.fill('9', bytes.length - 20, bytes.length - 10),
          () => refuse(isDamaged(file)),
        )
      }
      const manifest = await readManifest(openPlace(folder, {}))
      const write = (more: object) => writeManifest(openPlace(folder, {}), { ...manifest, ...more })
      await changed('manifest.json', undefined, async () => {
        await refuse('This is not a complete backup: it has no manifest.json.')
        await write({ system: 'another' })
        await refuse(`This backup is of another: its databases cannot be read on ${manifest.system}.`)
        await write({ migration: manifest.migration + 1e12, version: '99' })
        await refuse('This backup is of a newer version (99) of Pilothouse: update before you restore it.')
      })
    })

    it('refuses a missing or short passphrase, a folder that is not empty and unknown arguments', async () => {
      const none = { BACKUP_PASSPHRASE: '' }
      await refuse('The keys of this backup are encrypted: set BACKUP_PASSPHRASE or give --key-file.', { env: none })
      await refuse('BACKUP_PASSPHRASE is too short: it must have at least 12 characters.', {
        env: { BACKUP_PASSPHRASE: 'short' },
      })
      await refuse('Cannot read the key file nowhere (ENOENT).', { args: [folder, '--key-file', 'nowhere'] })
      await refuse(`${machine.folder} is not empty: choose another folder with PILOTHOUSE_DATA=<folder>.`, {
        env: { PILOTHOUSE_DATA: machine.folder },
      })
      const usage = 'Usage: npm run restore -- <folder or s3://bucket/prefix> [--key-file <file>]'
      await refuse(usage, { args: [] })
      await refuse(usage, { args: [folder, '--plaintext-keys'] })
      await refuse('ftp://copies is not a place for a backup: give a folder or s3://bucket/prefix.', {
        args: ['ftp://copies'],
      })
      await refuse('Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the keys of the bucket.', {
        args: ['s3://copies/nightly'],
        env: { AWS_SECRET_ACCESS_KEY: '' },
      })
    })
  })

  it('store keys unencrypted only without a passphrase, and then need none', () => {
    const files = { 'secrets.json': 'a secret' }
    const sealed = sealKeys(files, PASSPHRASE)
    expect(sealed).not.toContain('a secret')
    expect(openKeys(sealKeys(files, undefined), undefined)).toEqual(files)
    expect(openKeys(sealed, PASSPHRASE)).toEqual(files)
  })

  it('refuse a backup without a passphrase, into a place that is not empty, or of an installation that does not run', async () => {
    const refuse = async (message: string, { args = [`${folder}-2`], env = {} }: Refused = {}) => {
      const asked = backup({ args, env: { ...machine.env, ...env }, print: () => {} })
      expect(await asked.catch(describeFailure)).toContain(message)
      await expect(readdir(`${folder}-2`)).rejects.toThrow('ENOENT')
    }
    await refuse('Set BACKUP_PASSPHRASE, or give --key-file <file>', { env: { BACKUP_PASSPHRASE: '' } })
    await refuse('The place of the backup is not empty: give a new one.', { args: [folder] })
    await refuse('The place of the backup is not empty: give a new one.', { args: ['s3://copies/nightly'] })
    await refuse('Cannot reach the database: is it running?')
    await refuse('DATABASE_URL and HOST_URL are set', { env: { DATABASE_URL: 'postgresql://127.0.0.1/x' } })
    await refuse('Usage: npm run backup', { args: [`${folder}-2`, '--key-file', 'x', '--plaintext-keys'] })
  })
})

interface Refused {
  args?: string[]
  env?: NodeJS.ProcessEnv
}

const isDamaged = (file: string) => `The backup is damaged: ${file} is not what was stored.`

async function filesIn(place: string): Promise<string[]> {
  const entries = await readdir(place, { recursive: true, withFileTypes: true })
  return entries.filter((entry) => entry.isFile()).map((entry) => relative(place, join(entry.parentPath, entry.name)))
}

/** Runs `work` while the file of the backup has other bytes, or does not exist. */
async function changed(file: string, change: ((bytes: Buffer) => Uint8Array) | undefined, work: () => Promise<void>) {
  const [path, saved] = [join(folder, file), `${folder}-saved`]
  await rename(path, saved)
  if (change) await writeFile(path, change(await readFile(saved)))
  await work()
  await rename(saved, path)
}
