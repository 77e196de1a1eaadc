import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { errorCode, errorMessage, StartError } from './start-error.ts'

export const ROOT = fileURLToPath(new URL('..', import.meta.url))
export const CONFIG = 'wrangler.toml'
export const BUILDER_CONFIG = 'src/builder/wrangler.toml'
/** Name of the builder's folder inside the folder of the Worker's bundle. */
export const BUILDER = 'builder'

interface BuildOptions {
  /** The folder that receives the bundle. */
  folder: string
  root?: string
  /** Replaces the entry file of wrangler.toml. */
  entry?: string
}

/** File in the folder of a bundle with the fingerprints of its sources and of itself. */
const FINGERPRINTS = 'made-of.txt'

/** Bundles the Worker and the builder as a deployment does. Keeps an existing bundle if it is intact and its sources are unchanged. */
export async function buildWorker({ folder, root = ROOT, entry }: BuildOptions): Promise<void> {
  const mark = join(folder, FINGERPRINTS)
  const sources = entry ? undefined : await fingerprint(root, SOURCES)
  const fingerprints = async () => [sources, await fingerprint(root, BUILT), await bundleFingerprint(folder)].join(' ')
  if (sources && (await readFile(mark, 'utf8').catch(() => '')) === (await fingerprints())) return
  await rm(folder, { recursive: true, force: true })
  await Promise.all([
    bundle(CONFIG, { folder, root, entry }),
    bundle(BUILDER_CONFIG, { folder: join(folder, BUILDER), root }),
  ])
  if (sources) await writeFile(mark, await fingerprints())
}

/** Everything that goes into a bundle; the last file lists what npm has installed. */
const SOURCES = ['src', 'docs', CONFIG, 'package.json', 'tsconfig.json', 'node_modules/.package-lock.json']
/** Output of the build outside the bundle's folder. */
const BUILT = ['dist/page']

/** A hash of the names and bytes of all files at these paths and in their folders; undefined if a path does not exist. */
export async function fingerprint(root: string, paths: readonly string[]): Promise<string | undefined> {
  const hash = createHash('sha256')
  try {
    for (const file of (await Promise.all(paths.map((path) => filesAt(root, path)))).flat()) {
      const bytes = await readFile(join(root, file))
      hash.update(`${file}\0${bytes.byteLength}\0`).update(bytes)
    }
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
  return hash.digest('hex')
}

/** Fingerprint of the files that a start runs: a truncated or changed bundle is rebuilt. */
async function bundleFingerprint(folder: string): Promise<string | undefined> {
  const namesIn = async (part: string) => {
    const names = await readdir(join(folder, part)).catch(() => [])
    return names.filter((name) => !IGNORED_FILES.test(name)).map((name) => join(part, name))
  }
  return fingerprint(folder, [...(await namesIn('')), ...(await namesIn(BUILDER))].sort())
}

/** Files that nothing runs, such as wrangler's own. */
const IGNORED_FILES = new RegExp(`^(config|${BUILDER}|${FINGERPRINTS})$|\\.map$`)

async function filesAt(root: string, path: string): Promise<string[]> {
  if (!(await stat(join(root, path))).isDirectory()) return [path]
  const entries = await readdir(join(root, path), { withFileTypes: true })
  const names = entries.sort((a, b) => (a.name < b.name ? -1 : 1)).map(({ name }) => join(path, name))
  return (await Promise.all(names.map((name) => filesAt(root, name)))).flat()
}

async function bundle(config: string, { folder, root = ROOT, entry }: BuildOptions): Promise<void> {
  const wrangler = createRequire(join(root, CONFIG))
    .resolve('wrangler/package.json')
    .replace('package.json', 'bin/wrangler.js')
  const args = [
    wrangler,
    'deploy',
    '--dry-run',
    '--config',
    join(root, config),
    '--outdir',
    folder,
    ...(entry ? [entry] : []),
  ]
  // wrangler writes into the folder, because users that run services may have no home folder.
  const places = { XDG_CONFIG_HOME: join(folder, 'config'), WRANGLER_WRITE_LOGS: 'false' }
  const env = { ...process.env, ...places, CI: '1', NO_COLOR: '1', WRANGLER_SEND_METRICS: 'false' }
  try {
    await promisify(execFile)(process.execPath, args, { cwd: root, env })
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : ''
    throw new StartError(`The Worker cannot be built: ${output || errorMessage(error)}`)
  }
}
