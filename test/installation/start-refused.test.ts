import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { isIntact } from '../../dev/bundle.ts'
import { deleteData } from '../../dev/data-folder.ts'
import { readSecrets } from '../../dev/secrets.ts'
import { isAlive } from '../../host/instances/server.ts'
import { runFolder } from '../../host/run-folder.ts'
import { copyInstallation } from '../support/installations.ts'
import { type Machine, newMachine, stop } from '../support/machine.ts'

/** The tests of a refusal undo what they change; those of a start go on from the one before. */
let machine: Machine
beforeAll(async () => {
  machine = await newMachine({}, inject('begun'))
})
afterAll(() => machine.dispose())

/** Returns the output of a start that is refused. */
async function refusal(args: string[] = [], settings: Record<string, string> = {}): Promise<string> {
  const env = { ...machine.env, ...settings }
  const child = spawn('node', ['dev/start.ts', ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data: Buffer) => (text += data))
  await once(child, 'close')
  expect(child.exitCode, text).toBe(1)
  return text
}

/** Runs a program as a user without rights, and returns its exit code and output. */
function asNobody(program: string, settings: Record<string, string> = {}) {
  const command = `cd ${process.cwd()} && exec setpriv --reuid=65534 --clear-groups node ${program}`
  const env = { ...machine.env, ...settings }
  const { status, stdout, stderr } = spawnSync('sh', ['-c', command], { env, encoding: 'utf8' })
  return [status, stdout, stderr]
}

const ELSEWHERE = 'choose another folder with PILOTHOUSE_DATA=<folder>'

const hasScript = spawnSync('script', ['--version']).status === 0
const isRoot = process.getuid?.() === 0
const mount = (...args: string[]) => spawnSync('mount', args).status === 0
function tryMount(): boolean {
  const folder = mkdtempSync('/tmp/ph-')
  const can = mount('-t', 'tmpfs', '-o', 'size=1m', 'none', folder)
  if (can) spawnSync('umount', [folder])
  rmSync(folder, { recursive: true })
  return can
}
const canMount = tryMount()

describe.skipIf(!canMount)('a disk (skipped where this user may not mount one)', () => {
  function mounted(options: string): string {
    const folder = mkdtempSync('/tmp/ph-')
    expect(mount('-t', 'tmpfs', '-o', options, 'none', folder)).toBe(true)
    onTestFinished(() => {
      spawnSync('umount', ['--lazy', folder])
      rmSync(folder, { recursive: true })
    })
    return folder
  }

  it.each(['', '/data/deep'])('that is read-only is reported in one line, for the folder {disk}%s', async (below) => {
    const disk = mounted('ro,size=1m')
    expect(await refusal([], { PILOTHOUSE_DATA: disk + below })).toBe(
      `${disk} is on a read-only file system: mount it for writing, or ${ELSEWHERE}.\n`,
    )
  })

  it('without room for a new installation is reported, with the figures', async () => {
    const disk = mounted('size=20m')
    expect(await refusal([], { PILOTHOUSE_DATA: disk })).toBe(
      `The disk of ${disk} is full: 20 MiB are free, and 256 MiB are needed. Free some, or ${ELSEWHERE}.\n`,
    )
  })

  it('that is full prevents a start, but not the deletion of an installation', async () => {
    const disk = mounted('size=400m')
    copyInstallation(inject('begun'), disk)
    spawnSync('sh', ['-c', `head -c 400m /dev/zero > ${disk}/host/fill`])
    expect(await refusal([], { PILOTHOUSE_DATA: disk })).toBe(
      `The disk of ${disk} is full: 0 MiB are free, and 16 MiB are needed. Free some, or ${ELSEWHERE}.\n`,
    )
    expect(existsSync(join(disk, 'secrets.json'))).toBe(true)
    // Deleting the data makes room: the refusal that follows is that of a new installation.
    spawnSync('sh', ['-c', `mv ${disk}/host/fill ${disk}/fill`])
    expect(await refusal(['--reset', '--yes'], { PILOTHOUSE_DATA: disk })).toContain('256 MiB are needed')
    expect(existsSync(join(disk, 'secrets.json'))).toBe(false)
  })
})

describe('a folder', () => {
  it.skipIf(!isRoot)('of another user is refused, without advice to delete it', async () => {
    const file = join(machine.folder, 'secrets.json')
    const { uid, gid } = statSync(file)
    onTestFinished(() => chownSync(file, uid, gid))
    chownSync(file, 4711, 4711)
    const line = await refusal()
    expect(line).toBe(
      `${machine.folder} belongs to another user (4711; this is 0): start as that user, or ${ELSEWHERE}.\n`,
    )
  })

  it.skipIf(!isRoot)('that this user may not write to is reported', async () => {
    const foreign = join(machine.folder, 'foreign')
    onTestFinished(() => {
      chmodSync(machine.folder, 0o700)
      rmSync(foreign, { recursive: true })
    })
    mkdirSync(foreign, { mode: 0o755 })
    chmodSync(machine.folder, 0o755)
    expect(asNobody('dev/start.ts', { PILOTHOUSE_DATA: join(foreign, 'data') })).toEqual([
      1,
      '',
      `This user may not write to ${foreign}: give it the right, or ${ELSEWHERE}.\n`,
    ])
  })

  it.skipIf(!isRoot).each([
    ['admin', 'dev/admin.ts status'],
    ['backup', 'dev/backup.ts /nowhere'],
  ])('that this user may not read is not called empty by %s', (_, program) => {
    expect(asNobody(program, { BACKUP_PASSPHRASE: 'a passphrase of the test' })).toEqual([
      1,
      '',
      `${machine.folder}/host/instances: this user has no right to it: run this as the user who owns it.\n`,
    ])
  })

  it('that is a file is reported', async () => {
    const file = join(machine.folder, 'file')
    onTestFinished(() => rmSync(file))
    writeFileSync(file, '')
    expect(await refusal([], { PILOTHOUSE_DATA: file })).toBe(
      `${file} is not a folder: move it away, or ${ELSEWHERE}.\n`,
    )
  })

  it.each([
    ['is missing', (file: string) => rmSync(file)],
    ['is damaged', (file: string) => writeFileSync(file, '{"ENCRYPTION_KEY":')],
  ])('whose secrets.json %s is refused', async (state, damage) => {
    const file = join(machine.folder, 'secrets.json')
    const before = readFileSync(file)
    onTestFinished(() => writeFileSync(file, before, { mode: 0o600 }))
    damage(file)
    expect(await refusal()).toContain(`${file} ${state}: put it back from a backup; without it, the data in`)
  })
})

describe('npm start -- --reset', () => {
  it('deletes nothing without a terminal, and takes --yes only with --reset', async () => {
    const secrets = join(machine.folder, 'secrets.json')
    const before = readFileSync(secrets, 'utf8')
    expect(await refusal(['--reset'])).toBe(
      `npm start -- --reset deletes all data in ${machine.folder}: add --yes to confirm.\n`,
    )
    expect(await refusal(['--yes'])).toBe('--yes can only be used with --reset.\n')
    expect(readFileSync(secrets, 'utf8')).toBe(before)
  })

  it.skipIf(!hasScript)('asks at a real terminal (skipped without script, which makes one)', () => {
    const options = { env: machine.env, input: 'no\n', encoding: 'utf8', timeout: 60_000 } as const
    const { stdout, status } = spawnSync('script', ['-qec', 'node dev/start.ts --reset', '/dev/null'], options)
    expect(stdout).toContain(`npm start -- --reset deletes all data in ${machine.folder}. Type "yes" to continue: `)
    expect(stdout).toContain('Nothing was changed.')
    expect(status).toBe(1)
    expect(existsSync(join(machine.folder, 'secrets.json'))).toBe(true)
  })
})

describe('a start', () => {
  it.each([
    ['PORT', 'POSTGRES_PORT'],
    ['PROXY_PORT', 'S3_PORT'],
  ] as const)('refuses %s and %s if they are equal', async (one, other) => {
    const port = machine.env[one] ?? ''
    expect(await refusal([], { [other]: port })).toBe(
      `${one} and ${other} are both ${port}: give each a port of its own.\n`,
    )
  })

  it.each([
    ['NPM_REGISTRY_URL', 'nowhere', 'NPM_REGISTRY_URL=nowhere cannot be used: Invalid URL.'],
    ['BASE_URL', 'nowhere', 'BASE_URL=nowhere cannot be used: Invalid URL.'],
    ['GITHUB_APP_ID', '1', 'GITHUB_APP_PRIVATE_KEY is missing: the GitHub App needs it.'],
    ['POSTGRES_ADDRESS', 'db.example.com', 'POSTGRES_ADDRESS=db.example.com is not an IP address.'],
    [
      'POSTGRES_ADDRESS',
      '0.0.0.0',
      'POSTGRES_ADDRESS needs DATABASE_HOST, the name under which clients reach the databases.',
    ],
    ['DATABASE_PORT', 'x', 'DATABASE_PORT=x cannot be used: Invalid input: expected number, received NaN.'],
  ])('refuses %s=%s before it starts anything', async (name, value, problem) => {
    expect(await refusal([], { [name]: value })).toBe(`${problem}\n`)
  })

  it('refuses an address for the databases that is not one of this machine', async () => {
    const settings = { POSTGRES_ADDRESS: '192.0.2.1', DATABASE_HOST: 'db.example.com' }
    expect(await refusal([], settings)).toBe('POSTGRES_ADDRESS=192.0.2.1 is not an address of this machine.\n')
  })

  it('notices a deleted bucket, and with --empty-bucket starts without it and closes the folders to other users', async () => {
    await machine.stopAll()
    const bucket = join(machine.folder, 's3')
    rmSync(bucket, { recursive: true })
    for (const state of ['missing', 'empty']) {
      if (state === 'empty') mkdirSync(bucket)
      expect(await refusal()).toBe(
        `The bucket ${bucket} is missing or empty: restore it, or start without the objects, backups and functions in it: npm start -- --empty-bucket.\n`,
      )
    }
    const folders = ['s3', 'worker', 'bundle'].map((name) => join(machine.folder, name))
    for (const folder of folders) {
      mkdirSync(folder, { recursive: true })
      chmodSync(folder, 0o755)
    }
    const running = await machine.started('--empty-bucket')
    expect(folders.map((folder) => statSync(folder).mode & 0o777)).toEqual([0o700, 0o700, 0o700])
    expect((await machine.get('/v1/profile')).status).toBe(200)
    expect(await stop(running)).toBe(0)
  })

  it('rebuilds a damaged bundle, and needs no --empty-bucket for the bucket that it made', async () => {
    await machine.stopAll()
    const bundle = join(machine.folder, 'bundle')
    const [built, builder] = [join(bundle, 'index.js'), join(bundle, 'builder', 'index.js')]
    const before = [built, builder].map((file) => readFileSync(file, 'utf8'))
    const [program = ''] = before
    expect(await isIntact(bundle)).toBe(true)
    writeFileSync(built, program.slice(0, program.length / 2))
    expect(await isIntact(bundle)).toBe(false)
    writeFileSync(built, program)
    expect(await isIntact(bundle)).toBe(true)
    appendFileSync(builder, 'garbage(')
    expect(await isIntact(bundle)).toBe(false)
    await machine.started()
    expect([built, builder].map((file) => readFileSync(file, 'utf8'))).toEqual(before)
    expect(statSync(bundle).mode & 0o777).toBe(0o700)
    expect((await machine.get('/v1/profile')).status).toBe(200)
  })

  it('sets the control password of its folder, and admin reports one that is refused', async () => {
    const file = join(machine.folder, 'secrets.json')
    const secrets = await readSecrets(machine.folder, { isNew: false })
    const running = await machine.running()
    writeFileSync(file, JSON.stringify({ ...secrets, CONTROL_PASSWORD: 'another' }), { mode: 0o600 })
    await expect(machine.admin('user', 'create', 'x', 'x@example.com')).rejects.toMatchObject({
      stderr: expect.stringMatching(/^The database refuses the password: is it that of another installation\? .*\n$/),
    })
    expect(await stop(running)).toBe(0)
    await machine.started()
    expect(await machine.admin('user', 'create', 'x', 'x@example.com')).toMatch(/^user /)
  })
})

describe('the deletion of the data', () => {
  it('stops the servers that a killed start left, and removes their sockets', async () => {
    const host = join(machine.folder, 'host')
    const killed = await machine.running()
    const pidFile = join(host, 'instances', 'control', 'data', 'postmaster.pid')
    const pid = Number.parseInt(readFileSync(pidFile, 'utf8'), 10)
    const run = await runFolder(host)
    killed.child.kill('SIGKILL')
    await once(killed.child, 'exit')
    expect([await isAlive(pid), existsSync(join(run, 'control'))]).toEqual([true, true])
    await deleteData(machine.folder)
    expect([await isAlive(pid), existsSync(run)]).toEqual([false, false])
  })
})
