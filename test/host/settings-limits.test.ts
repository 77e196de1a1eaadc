import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { usableMemoryBytes } from '../../host/memory.ts'
import { openLimits } from '../../host/settings/cgroup.ts'
import { LOG_FIELDS, renderConfiguration } from '../../host/settings/configuration.ts'
import { SIZES, sizeSettings } from '../../host/settings/sizes.ts'
import { INSTANCE_SIZES } from '../../src/model/tables/values.ts'

let root: string

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'ph-cgroup-'))
})
afterEach(() => rm(root, { recursive: true, force: true }))

/** Makes a folder of plain files that looks like a control group. */
async function group(folder: string, controllers: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'cgroup.controllers'), controllers)
  await writeFile(join(folder, 'cgroup.subtree_control'), '')
}

test('counts on the memory of the machine, or of the control group of the host if that is less', () => {
  const [machine, unknown, unlimited] = [8 * 2 ** 30, 0, 2 ** 63]
  expect(usableMemoryBytes(machine, 2 ** 30)).toBe(2 ** 30)
  expect([unknown, unlimited].map((limit) => usableMemoryBytes(machine, limit))).toEqual([machine, machine])
})

test('limits a server to the memory and processors of its size', async () => {
  await group(root, 'cpuset cpu io memory pids')
  await group(join(root, 'pilothouse'), 'cpu memory')
  const limits = await openLimits(root, true)
  expect(await readFile(join(root, 'cgroup.subtree_control'), 'utf8')).toBe('+cpu +memory')
  await limits.assign({ name: 'one', size: 'small', pid: 4_194_305 })
  const read = (file: string) => readFile(join(root, 'pilothouse', 'one', file), 'utf8')
  expect(await read('memory.max')).toBe(String(2 * 1024 ** 3))
  expect(await read('cpu.max')).toBe('200000 100000')
  expect(await read('cgroup.procs')).toBe('4194305')
})

test.each([
  ['without control groups', '', true],
  ['without the controllers', 'cpuset pids', true],
  ['without root', 'cpu memory', false],
])('runs without limits %s', async (_, controllers, isRoot) => {
  if (controllers) await group(root, controllers)
  const limits = await openLimits(root, isRoot)
  await limits.assign({ name: 'one', size: 'small', pid: 1 })
  await expect(stat(join(root, 'pilothouse', 'one'))).rejects.toMatchObject({ code: 'ENOENT' })
  await limits.remove('one')
})

test('knows every size that the API names', () => {
  for (const size of INSTANCE_SIZES) expect(SIZES.has(size)).toBe(true)
})

test('reduces a size for a smaller machine', () => {
  expect(sizeSettings('xlarge', 64 * 1024 ** 3).shared_buffers).toBe('4GB')
  expect(sizeSettings('xlarge', 2 * 1024 ** 3).shared_buffers).toBe('512MB')
  expect(sizeSettings('micro', 64 * 1024 ** 3).shared_buffers).toBe('16MB')
})

const record = {
  name: 'abcdefghijklmnopqrst',
  major: '18',
  size: 'micro',
  isPaused: false,
  settings: {},
  access: { ssl: false, networks: null },
  createdAt: '',
}
const facts = {
  memoryBytes: 8 * 1024 ** 3,
  isDurable: true,
  isArchiving: true,
  paths: { socket: "/run/o'ne", wal: '/wal' },
  programs: { major: '17' },
}

test('writes the settings that a version knows, quoted', () => {
  const settings = { work_mem: "1MB'\nssl = 'on\\" }
  const text = renderConfiguration({ ...record, isArchived: true, settings }, facts)
  expect(text).toContain("\nunix_socket_directories = '/run/o''ne'\n")
  expect(text).toContain("\nwork_mem = '1MB''\\nssl = ''on\\\\'\n")
  expect(text).toContain("\nbasic_archive.archive_directory = '../wal'\n")
  expect(text).not.toContain('io_method')
  expect(text).not.toContain('fsync')
  expect(renderConfiguration(record, { ...facts, programs: { major: '18' } })).toContain("\nio_method = 'sync'\n")
  expect(() => renderConfiguration({ ...record, settings: { 'a = 1\nb': 'c' } }, facts)).toThrow(/Not the name/)
  expect(Object.keys(LOG_FIELDS)).toHaveLength(9)
})

test('gives the control database connections of its own', () => {
  const text = renderConfiguration({ ...record, name: 'control' }, facts)
  expect(text).toContain("\nmax_connections = '200'\n")
  expect(text).toContain("\nshared_buffers = '256MB'\n")
})
