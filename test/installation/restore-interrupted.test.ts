import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest'
import { putSummed } from '../../dev/backup/copy.ts'
import { sealKeys } from '../../dev/backup/keys.ts'
import { chunks, KEYS, OBJECTS, SYSTEM, textOf, writeManifest } from '../../dev/backup/manifest.ts'
import { listenOnFreePort } from '../support/listen.ts'
import { type Machine, newMachine } from '../support/machine.ts'

let machine: Machine
beforeEach(async () => {
  machine = await newMachine()
})
afterEach(() => machine.dispose())

const SECRETS = ['ENCRYPTION_KEY', 'CONTROL_PASSWORD', 'HOST_KEY', 'ARCHIVE_KEY', 'S3_ACCESS_KEY_ID']

/** Starts a bucket with a backup whose list of objects never arrives. */
async function startBucket(): Promise<{ url: string; untilListIsRead: Promise<void> }> {
  const files = new Map<string, string>()
  const put = async (file: string, body: AsyncIterable<Uint8Array>) => void files.set(file, await textOf(body))
  const secrets = Object.fromEntries([...SECRETS, 'S3_SECRET_ACCESS_KEY'].map((name) => [name, 'a'.repeat(20)]))
  const keys = chunks(sealKeys({ 'secrets.json': JSON.stringify(secrets) }, undefined))
  const manifest = {
    ...({ format: 1, version: '1', migration: 0, system: SYSTEM, at: new Date().toISOString() } as const),
    ...{ instances: [], objects: { count: 0, bytes: 0 } },
    files: { [OBJECTS]: { bytes: 0, sha256: '' }, [KEYS]: await putSummed((body) => put(KEYS, body), keys) },
  }
  await writeManifest({ put, async *get() {}, isEmpty: async () => true }, manifest)
  const listIsRead = Promise.withResolvers<void>()
  const server = createServer(({ url }, response) => {
    const text = files.get(new URL(url ?? '', 'http://bucket').pathname.replace('/copies/', ''))
    if (text === undefined) listIsRead.resolve()
    else response.end(text)
  })
  const port = await listenOnFreePort(server)
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  return { url: `http://127.0.0.1:${port}`, untilListIsRead: listIsRead.promise }
}

/** Starts a restore into the machine's folder and sends it a signal while it copies objects. */
async function interruptRestore(signal: NodeJS.Signals) {
  const { url, untilListIsRead } = await startBucket()
  const aws = { AWS_ENDPOINT_URL: url, AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' }
  const temporary = await mkdtemp(join(tmpdir(), 'pilothouse-interrupted-'))
  onTestFinished(() => rm(temporary, { recursive: true }))
  const env = { ...machine.env, ...aws, TMPDIR: temporary }
  const child = spawn('node', ['dev/restore.ts', 's3://copies'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => (output += data))
  const closed = once(child, 'close')
  await Promise.race([untilListIsRead, closed])
  child.kill(signal)
  await closed
  expect(await readdir(temporary)).not.toContainEqual(expect.stringContaining('pilothouse-backup'))
  return { code: child.exitCode, output }
}

it.each(['SIGINT', 'SIGTERM'] as const)('a restore that gets %s empties the folder', async (signal) => {
  const { code, output } = await interruptRestore(signal)
  expect([code, output]).toEqual([1, `Interrupted by ${signal}: ${machine.folder} is empty again.\n`])
  expect(await readdir(machine.folder)).toEqual([])
})

it('a start refuses the folder of a restore that was killed', async () => {
  expect(await interruptRestore('SIGKILL')).toEqual({ code: null, output: '' })
  const running = machine.start('--empty-bucket')
  await once(running.child, 'close')
  expect(running.child.exitCode).toBe(1)
  expect(running.output()).toContain(`${machine.folder}/secrets.json is missing: put it back from a backup`)
})
