import { spawn } from 'node:child_process'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Account, initdbAccount } from '../accounts.ts'
import { ownAll } from '../instances/files.ts'
import { type InstanceRecord, InstanceUnavailable, type Programs, Refused } from '../instances/types.ts'
import { type ConfigurationFacts, renderConfiguration } from './configuration.ts'
import { sizeNamed } from './sizes.ts'

/** A data folder and facts with which a configuration is tested before an instance gets it. */
export interface Trial {
  /** A data folder of the same major version, without a running server. It stays as it is. */
  folder: string
  facts: Pick<ConfigurationFacts, 'memoryBytes' | 'isDurable' | 'isArchiving'>
}

/** The parts of an instance that its configuration depends on. */
export interface Subject extends Pick<ConfigurationFacts, 'paths'> {
  record: InstanceRecord
  programs: Programs
}

export const factsOf = ({ paths, programs }: Subject, { facts }: Trial): ConfigurationFacts => ({
  ...facts,
  paths,
  programs,
})

interface Candidate {
  record: InstanceRecord
  /** Names of the settings that differ from those of the instance. */
  changed: readonly string[]
}

/** Throws `Refused` if a server with the candidate's configuration would not start. */
export async function tryConfiguration(instance: Subject, candidate: Candidate, trial: Trial): Promise<void> {
  const scratch = await mkdtemp(join(tmpdir(), 'pilothouse-trial-'))
  const place = { account: await initdbAccount(), folder: join(scratch, 'data') }
  try {
    await copyWithoutDatabases(trial.folder, place.folder)
    await ownAll(place.folder, place.account)
    await tryIn(place, instance, candidate, trial)
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** The databases are nine tenths of the files, and no program that tries a configuration opens one. */
const copyWithoutDatabases = (from: string, to: string): Promise<void> =>
  cp(from, to, { recursive: true, filter: (path) => path !== join(from, 'base') })

interface Place {
  account: Account
  folder: string
}

async function tryIn(place: Place, instance: Subject, { record, changed }: Candidate, trial: Trial): Promise<void> {
  const start = createTester(place, instance, trial)
  const failure = await start(record, (megabytes) => refuseBeyondSize(megabytes, record, changed))
  if (failure === undefined) return
  const refused = toRefused(failure, changed)
  // If the message names no setting, the host may be at fault: then the instance's current configuration fails as well.
  const isNamed = changed.some((name) => namesSetting(failure, name))
  if (!isNamed && (await start(instance.record)) !== undefined) throw new InstanceUnavailable(refused.message)
  throw refused
}

/**
 * Returns a function that tests a record. It resolves to the errors of Postgres, or to undefined if a server would start.
 * `checkMemory` may refuse the shared memory before it is mapped.
 */
function createTester({ account, folder }: Place, instance: Subject, trial: Trial) {
  const program = join(instance.programs.bin, 'postgres')
  // The account may be unable to enter the parents of the folder, but a process can always use its working directory.
  const data = process.platform === 'linux' ? '/proc/self/cwd' : folder
  const flags = ['-D', data, ...PLAIN_MESSAGES]
  return async (record: InstanceRecord, checkMemory = (_megabytes: number) => {}): Promise<string | undefined> => {
    await writeFile(join(folder, 'postgresql.conf'), renderConfiguration(record, factsOf(instance, trial)))
    // Both programs end by themselves. The first checks all values and their combination, the second maps the memory.
    const memory = await run(program, [...flags, '-C', 'shared_memory_size'], { ...account, cwd: folder })
    if (memory.code !== 0) return memory.errors
    checkMemory(Number(memory.output))
    const mapped = await run(program, ['--check', ...flags], { ...account, cwd: folder })
    return mapped.code === 0 ? undefined : mapped.errors
  }
}

const PLAIN_MESSAGES = ['log_line_prefix=', 'log_error_verbosity=default', 'lc_messages=C'].flatMap((flag) => [
  '-c',
  flag,
])

interface Ended {
  code: number | null
  output: string
  errors: string
}

const TRIAL_MS_MAX = 30_000

function run(
  program: string,
  flags: readonly string[],
  place: { uid?: number; gid?: number; cwd: string },
): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const env = { PATH: process.env.PATH, LANG: 'C' }
    const child = spawn(program, flags, { ...place, env, timeout: TRIAL_MS_MAX, killSignal: 'SIGKILL' })
    const ended: Ended = { code: null, output: '', errors: '' }
    child.stdout.on('data', (chunk) => {
      ended.output += chunk
    })
    child.stderr.on('data', (chunk) => {
      ended.errors += chunk
    })
    child.once('error', reject)
    child.once('close', (code) => resolve({ ...ended, code }))
  })
}

const memoryMaxOf = ({ name, size }: InstanceRecord): number =>
  name === 'control' ? Number.POSITIVE_INFINITY : sizeNamed(size).memoryBytes / 1024 ** 2

/** The size bounds shared memory, which a server keeps while it runs, even if no control group enforces it. */
function refuseBeyondSize(megabytes: number, record: InstanceRecord, changed: readonly string[]): void {
  const megabytesMax = memoryMaxOf(record)
  if (megabytes < megabytesMax) return
  const reason = `would take ${megabytes} MB of shared memory with the other settings; an instance of the size ${record.size} has ${megabytesMax} MB`
  throw new Refused([{ setting: likelyCause(changed), reason }])
}

const namesSetting = (message: string, name: string): boolean =>
  new RegExp(`(?<![\\w.])${name}(?![\\w.])`).test(message)

const likelyCause = (changed: readonly string[]): string =>
  changed.includes('shared_buffers') ? 'shared_buffers' : (changed[0] ?? 'size')

/** Turns the errors of Postgres into refusals, each with its hint and under the setting that it names. */
function toRefused(errors: string, changed: readonly string[]): Refused {
  const messages = errors
    .split(/\n(?!\s|HINT: |DETAIL: )/)
    .map((message) => /^(?:.*?(?:LOG|ERROR|FATAL|PANIC|postgres): +)(.+)$/s.exec(message)?.[1])
    .filter((message) => message !== undefined)
    .map((message) =>
      message
        .replaceAll(/\s+(?:HINT|DETAIL): +/g, '. ')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    )
  const named = messages.flatMap((reason) => {
    const setting = changed.find((name) => namesSetting(reason, name))
    return setting ? [{ setting, reason }] : []
  })
  const reason = messages.at(-1) ?? 'Postgres does not start with this value, and gives no reason'
  return new Refused(named.length > 0 ? named : [{ setting: likelyCause(changed), reason }])
}
