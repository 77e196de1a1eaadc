import { spawn } from 'node:child_process'
import { chown, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { KeyedMutex } from '../instances/mutex.ts'
import { type Instance, type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'
import { type ConfigurationFacts, renderConfiguration } from './configuration.ts'
import { sizeNamed } from './sizes.ts'

/** A place to try a configuration in before an instance gets it. */
export interface Trial {
  /** A data folder of the same major version that no server uses. */
  folder: string
  facts: Pick<ConfigurationFacts, 'memoryBytes' | 'isDurable' | 'isArchiving'>
}

export const factsOf = (instance: Instance, { facts }: Trial): ConfigurationFacts => ({
  ...facts,
  paths: instance.paths,
  programs: instance.programs,
})

interface Candidate {
  record: InstanceRecord
  /** The settings that differ from what the instance has. */
  changed: readonly string[]
}

const turns = new KeyedMutex()

/** Throws `Refused` if a server with the candidate's configuration would not start. Only one program at a time can use the folder. */
export const tryConfiguration = (instance: Instance, candidate: Candidate, trial: Trial): Promise<void> =>
  turns.run(trial.folder, () => tryNow(instance, candidate, trial))

async function tryNow(instance: Instance, { record, changed }: Candidate, trial: Trial): Promise<void> {
  const start = await starterOf(instance, trial)
  const failure = await start(record)
  if (failure === undefined) return refuseBeyondSize(start.megabytes(), record, changed)
  const refused = refusal(failure, changed)
  // A message that names no setting may be of the host's own trouble: then what the instance has fails as well.
  const isNamed = changed.some((name) => namedIn(failure, name))
  if (!isNamed && (await start(instance.record)) !== undefined) throw new InstanceUnavailable(refused.message)
  throw refused
}

/** Resolves to what Postgres says if it would not start with a record, else to undefined. */
async function starterOf(instance: Instance, trial: Trial) {
  const { folder } = trial
  const { uid, gid } = await stat(folder)
  const account = process.getuid?.() === 0 ? { uid, gid } : {}
  const file = join(folder, 'postgresql.conf')
  const program = join(instance.programs.bin, 'postgres')
  // The folders above may be closed to the account, but a process may always use the folder that it is in.
  const data = process.platform === 'linux' ? '/proc/self/cwd' : folder
  const flags = ['-D', data, ...PLAIN_MESSAGES]
  let megabytes = 0
  const start = async (record: InstanceRecord): Promise<string | undefined> => {
    await writeFile(file, renderConfiguration(record, factsOf(instance, trial)), { mode: 0o600 })
    if (account.uid !== undefined) await chown(file, uid, gid)
    // Both end by themselves. The first checks every value and how they go together, the second maps the memory.
    const memory = await run(program, [...flags, '-C', 'shared_memory_size'], { ...account, cwd: folder })
    if (memory.code !== 0) return memory.errors
    megabytes = Number(memory.output)
    if (record !== instance.record && exceedsSize(megabytes, record)) return undefined
    const mapped = await run(program, ['--check', ...flags], { ...account, cwd: folder })
    return mapped.code === 0 ? undefined : mapped.errors
  }
  return Object.assign(start, { megabytes: () => megabytes })
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

const exceedsSize = (megabytes: number, record: InstanceRecord): boolean => megabytes >= memoryMaxOf(record)

/** Memory that servers share is not returned while they run, so the size bounds it, whether a control group does or not. */
function refuseBeyondSize(megabytes: number, record: InstanceRecord, changed: readonly string[]): void {
  if (!exceedsSize(megabytes, record)) return
  const reason = `would take ${megabytes} MB of shared memory with the other settings; an instance of the size ${record.size} has ${memoryMaxOf(record)} MB`
  throw new Refused([{ setting: likelyCause(changed), reason }])
}

const namedIn = (message: string, name: string): boolean => new RegExp(`(?<![\\w.])${name}(?![\\w.])`).test(message)

const likelyCause = (changed: readonly string[]): string =>
  changed.includes('shared_buffers') ? 'shared_buffers' : (changed[0] ?? 'size')

/** Each message in Postgres's own words, with its hint, by the setting that it names. */
function refusal(errors: string, changed: readonly string[]): Refused {
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
    const setting = changed.find((name) => namedIn(reason, name))
    return setting ? [{ setting, reason }] : []
  })
  const reason = messages.at(-1) ?? 'Postgres does not start with it, and gives no reason'
  return new Refused(named.length > 0 ? named : [{ setting: likelyCause(changed), reason }])
}
