import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, inject, it } from 'vitest'
import { type BackupPlace, openPlace } from '../../dev/backup/place.ts'
import { StartError } from '../../dev/start-error.ts'
import { MissingObject } from '../../host/backups/errors.ts'

const { endpoint, bucket, accessKeyId, secretAccessKey } = inject('s3')
const env = {
  AWS_ENDPOINT_URL: endpoint,
  AWS_REGION: 'auto',
  AWS_ACCESS_KEY_ID: accessKeyId,
  AWS_SECRET_ACCESS_KEY: secretAccessKey,
}
const UNREACHABLE = { ...env, AWS_ENDPOINT_URL: 'http://127.0.0.1:9' }

const open = (settings = env) => openPlace(`s3://${bucket}/backup-place`, settings)

async function* body(error?: Error) {
  yield Buffer.from('bytes')
  if (error) throw error
}

async function read(place: BackupPlace, key: string) {
  for await (const _chunk of place.get(key));
}

describe('a bucket for a backup', () => {
  it.each([
    ['does not answer', UNREACHABLE, 'ECONNREFUSED'],
    ['refuses the key', { ...env, AWS_SECRET_ACCESS_KEY: 'another' }, 'SignatureDoesNotMatch'],
  ])('that %s is named with the reason', async (_, settings, code) => {
    const place = open(settings)
    for (const work of [() => place.isEmpty(), () => place.put('key', body()), () => read(place, 'key')]) {
      await expect(work()).rejects.toThrow(StartError)
      await expect(work()).rejects.toThrow(`The bucket ${bucket} cannot be used (${code}): `)
    }
  })

  it('is left out of an error of the source, and of that of an absent object', async () => {
    const error = new Error('of the source')
    await expect(open().put('key', body(error))).rejects.toBe(error)
    await expect(read(open(), 'nowhere')).rejects.toThrow(MissingObject)
  })

  it('that does not answer is not reported as the database', async () => {
    const settings = { ...process.env, ...UNREACHABLE, BACKUP_PASSPHRASE: 'a passphrase of the test' }
    const command = promisify(execFile)('node', ['dev/backup.ts', 's3://copies/nightly'], { env: settings })
    const line = /^The bucket copies cannot be used \(ECONNREFUSED\): .*\n$/
    await expect(command).rejects.toMatchObject({ code: 1, stderr: expect.stringMatching(line) })
  })
})

it('a folder in the data folder is refused for a backup', async () => {
  const settings = { ...process.env, PILOTHOUSE_DATA: 'data', BACKUP_PASSPHRASE: 'a passphrase of the test' }
  const backup = (place: string) => promisify(execFile)('node', ['dev/backup.ts', place], { env: settings })
  for (const place of ['data', 'data/backup'])
    await expect(backup(place)).rejects.toMatchObject({ stderr: expect.stringContaining('is in the data folder') })
  await expect(backup('data-backup')).rejects.toMatchObject({ stderr: expect.not.stringContaining('in the data') })
})

it.each([
  ['backup', /^Usage: npm run backup -- <folder or s3:.*--plaintext-keys\]\n$/],
  ['restore', /^Usage: npm run restore -- <folder or s3:.*\[--key-file <file>\]\n$/],
])('npm run %s prints its usage for --help', async (command, usage) => {
  expect((await promisify(execFile)('node', [`dev/${command}.ts`, '--help'])).stdout).toMatch(usage)
})
