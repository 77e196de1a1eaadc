import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { promisify } from 'node:util'
import { errorMessage, StartError } from '../dev/start-error.ts'
import { exists } from './instances/files.ts'
import type { Programs } from './instances/types.ts'

/**
 * Extensions of the Postgres distribution that are reserved for superusers, but that owners can create on the hosted service.
 * Their scripts only declare C functions, so running one as the superuser calls no code of the owner.
 */
const OWNER_EXTENSIONS = [
  ...['autoinc', 'bloom', 'dblink', 'insert_username', 'moddatetime', 'pg_prewarm', 'pgrowlocks', 'pgstattuple'],
  ...['postgres_fdw', 'refint'],
]
/** Extensions whose library must be loaded at the start of the server. */
const LOADED_AT_START = ['pg_cron', 'pg_net', 'pgaudit', 'timescaledb']
const SETTING = 'POSTGRES_EXTENSIONS'

/** The extensions named in POSTGRES_EXTENSIONS (`postgis,pg_cron`), each of which one of the versions must have. */
export async function extensionsOfOperator(versions: readonly Programs[]): Promise<string[]> {
  const named = (process.env[SETTING] ?? '').split(',').map((name) => name.trim())
  const existing = await Promise.all(versions.map(extensionNames))
  const unknown = named.find((name) => name && !existing.some((names) => names.has(name)))
  if (unknown === undefined) return named.filter(Boolean)
  throw new StartError(`Invalid ${SETTING}: no version of Postgres on this machine has the extension "${unknown}".`)
}

/** The folders of an installation of Postgres. */
interface Layout {
  bin: string
  /** The folder of the libraries, of programs and extensions. */
  lib: string
  /** The folder that contains `extension`. */
  share: string
}

/**
 * Lets owners, who are not superusers, create the extensions above and those named by the operator.
 * Returns the same programs in a folder below `root`: it has copies of the programs, links to everything else, and control files
 * that mark these extensions as trusted. The folder is named after its content, so several daemons can share it.
 */
export async function withOwnerExtensions(
  programs: Programs,
  root: string,
  named: readonly string[],
): Promise<Programs> {
  const source = await findLayout(programs.bin)
  const files = await readdir(join(source.share, 'extension'))
  const trusted = [...new Set([...OWNER_EXTENSIONS, ...named])].filter((name) => files.includes(`${name}.control`))
  const { size, mtimeMs } = await stat(join(source.bin, 'postgres'))
  const content = JSON.stringify([source, size, mtimeMs, files, trusted])
  const name = `${programs.major}-${createHash('sha256').update(content).digest('hex').slice(0, 16)}`
  const target = relocated(join(root, name), source)
  if (!(await exists(join(root, name)))) {
    await publishFolder(join(root, name), (folder) => fillLayout(relocated(folder, source), source, trusted)).catch(
      (error) => {
        throw new StartError(`Cannot make ${join(root, name)}: ${errorMessage(error)}`)
      },
    )
  }
  return { ...programs, bin: target.bin, libraries: LOADED_AT_START.filter((library) => trusted.includes(library)) }
}

/** Names of all extensions that these programs can create. */
export async function extensionNames({ bin }: Programs): Promise<ReadonlySet<string>> {
  const files = await readdir(join((await findLayout(bin)).share, 'extension'))
  return new Set(files.flatMap((file) => /^(.+)\.control$/.exec(file)?.[1] ?? []))
}

/** Finds the folders with pg_config; the npm packages have no pg_config, but one known layout. */
async function findLayout(bin: string): Promise<Layout> {
  const npm = { bin, lib: join(bin, '../lib'), share: join(bin, '../share/postgresql') }
  if (await exists(join(npm.share, 'extension'))) return npm
  const config = promisify(execFile)(join(bin, 'pg_config'), ['--pkglibdir', '--sharedir'], { cwd: '/' })
  const { stdout } = await config.catch((error) => {
    throw new StartError(`Cannot find the extensions of ${bin}: ${errorMessage(error)}`)
  })
  const [lib = '', share = ''] = stdout.trim().split('\n')
  return { bin, lib, share }
}

/** The same layout below another folder: programs find their files by paths relative to their own folder. */
function relocated(folder: string, { bin, lib, share }: Layout): Layout {
  let root = dirname(bin)
  while ([lib, share].some((path) => relative(root, path).startsWith('..'))) root = dirname(root)
  const moved = (path: string) => join(folder, relative(root, path))
  return { bin: moved(bin), lib: moved(lib), share: moved(share) }
}

async function fillLayout(target: Layout, source: Layout, trusted: readonly string[]): Promise<void> {
  await mkdir(target.bin, { recursive: true })
  for (const program of ['postgres', 'initdb']) await copyFile(join(source.bin, program), join(target.bin, program))
  await mkdir(dirname(target.lib), { recursive: true })
  await symlink(source.lib, target.lib)
  await linkAll(source.share, target.share, ['extension'])
  const controls = trusted.map((name) => `${name}.control`)
  const [from, to] = [join(source.share, 'extension'), join(target.share, 'extension')]
  await linkAll(from, to, controls)
  for (const file of controls) {
    await writeFile(join(to, file), `${await readFile(join(from, file), 'utf8')}\ntrusted = true\n`)
  }
}

async function linkAll(from: string, to: string, excepted: readonly string[]): Promise<void> {
  await mkdir(to, { recursive: true })
  const entries = (await readdir(from)).filter((entry) => !excepted.includes(entry))
  for (const entry of entries) await symlink(join(from, entry), join(to, entry))
}

/** Makes a folder that every account can read. Another daemon may make the same folder first, which does no harm. */
export async function publishFolder(target: string, fill: (draft: string) => Promise<void>): Promise<void> {
  await mkdir(dirname(target), { recursive: true, mode: 0o755 })
  const draft = await mkdtemp(`${target}.new-`)
  try {
    await fill(draft)
    await chmod(draft, 0o755)
    for (const entry of await readdir(draft, { withFileTypes: true, recursive: true })) {
      const path = join(entry.parentPath, entry.name)
      if (entry.isDirectory()) await chmod(path, 0o755)
      else if (entry.isFile()) await chmod(path, entry.name.endsWith('.control') ? 0o644 : 0o755)
    }
    await rename(draft, target).catch(async (error) => {
      if (!(await exists(target))) throw error
    })
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
}
