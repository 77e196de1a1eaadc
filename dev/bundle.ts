import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { makePrivate } from '../host/instances/files.ts'
import { errorCode, errorMessage, StartError } from './start-error.ts'

export const ROOT = fileURLToPath(new URL('..', import.meta.url))
export const CONFIG = 'wrangler.toml'
export const BUILDER_CONFIG = 'src/builder/wrangler.toml'
/** Name of the builder's folder inside the folder of the Worker's bundle. */
export const BUILDER = 'builder'
/** File in the folder of a bundle with the options that wrangler derives from its configuration. */
export const OPTIONS = 'options.json'

interface BuildOptions {
  /** The folder that receives the bundle. */
  folder: string
  root?: string
  /** Replaces the entry file of wrangler.toml. */
  entry?: string
  /** The folder of a bundle of the same sources with another entry file: its builder and options are copied. */
  like?: string
}

/** File in the folder of a bundle with the fingerprints of its sources and of itself. */
const FINGERPRINTS = 'made-of.txt'

/** Bundles the Worker and the builder as a deployment does. Keeps an existing bundle if it is intact and its sources are unchanged. */
export async function buildWorker({ folder, root = ROOT, entry, like }: BuildOptions): Promise<void> {
  // Read before the build: a change during it must be noticed at the next start.
  const sources = entry ? undefined : sourcesFingerprint(root)
  const isKept = sources !== undefined && (await isBundleOf(sources, folder, root))
  if (!isKept) await rm(folder, { recursive: true, force: true })
  // Other users of the machine do not need the bundle.
  await makePrivate(folder)
  if (isKept) return
  await Promise.all([
    bundle(CONFIG, { folder, root, entry }),
    ...(like
      ? [BUILDER, OPTIONS].map((name) => cp(join(like, name), join(folder, name), { recursive: true }))
      : [bundle(BUILDER_CONFIG, { folder: join(folder, BUILDER), root }), saveOptions(folder, root)]),
  ])
  if (sources) await writeFile(join(folder, FINGERPRINTS), fingerprintsOf(sources, folder, root))
}

/** Whether the folder has a bundle of the present sources that is not damaged. */
export async function isIntact(folder: string, root = ROOT): Promise<boolean> {
  const sources = sourcesFingerprint(root)
  return sources !== undefined && isBundleOf(sources, folder, root)
}

const isBundleOf = async (sources: string, folder: string, root: string): Promise<boolean> =>
  (await readFile(join(folder, FINGERPRINTS), 'utf8').catch(() => '')) === fingerprintsOf(sources, folder, root)

/** The options in the bundle hold absolute paths, so the root counts too. */
const fingerprintsOf = (sources: string, folder: string, root: string): string =>
  [root, sources, fingerprint(root, BUILT), bundleFingerprint(folder)].join(' ')

const sourcesFingerprint = (root: string): string | undefined =>
  fingerprint(root, [...SOURCES, ...SETTINGS.filter((name) => isIn(root, name))])

/** Paths of everything that goes into a bundle; the last file lists the packages that npm has installed. */
const SOURCES = [
  ...['src', 'docs', 'dev/worker-options.ts', CONFIG],
  ...['package.json', 'tsconfig.json', 'node_modules/.package-lock.json'],
]
/** Files that wrangler reads if they exist. */
const SETTINGS = ['.dev.vars', '.env', '.env.local']
/** Output of the build outside the bundle's folder. */
const BUILT = ['dist/page']

/**
 * A hash of the names and bytes of all files at these paths and in their folders; undefined if a path does not exist. Synchronous,
 * because a thousand reads one after another would each wait for the other steps of a start.
 */
export function fingerprint(root: string, paths: readonly string[]): string | undefined {
  const hash = createHash('sha256')
  try {
    for (const file of paths.flatMap((path) => filesAt(root, path))) {
      const bytes = readFileSync(join(root, file))
      hash.update(`${file}\0${bytes.byteLength}\0`).update(bytes)
    }
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
  return hash.digest('hex')
}

/** Fingerprint of the files that a start runs: a truncated or changed bundle is rebuilt. */
function bundleFingerprint(folder: string): string | undefined {
  const namesIn = (part: string) => {
    const names = isIn(folder, part) ? readdirSync(join(folder, part)) : []
    return names.filter((name) => !IGNORED_FILES.test(name)).map((name) => join(part, name))
  }
  return fingerprint(folder, [...namesIn(''), ...namesIn(BUILDER)].sort())
}

const isIn = (folder: string, name: string): boolean => existsSync(join(folder, name))

/** Files that a start does not run, such as those of wrangler. */
const IGNORED_FILES = new RegExp(`^(config|${BUILDER}|${FINGERPRINTS})$|\\.map$`)

function filesAt(root: string, path: string): string[] {
  if (!statSync(join(root, path)).isDirectory()) return [path]
  const entries = readdirSync(join(root, path), { withFileTypes: true })
  const names = entries.sort((a, b) => (a.name < b.name ? -1 : 1)).map(({ name }) => join(path, name))
  return names.flatMap((name) => filesAt(root, name))
}

/** Saves the options of the Worker and of the builder, as Miniflare takes them, in the folder of their bundles. */
export async function saveOptions(folder: string, root = ROOT): Promise<void> {
  await mkdir(join(folder, BUILDER), { recursive: true })
  const script = fileURLToPath(new URL('worker-options.ts', import.meta.url))
  const paths = [
    ...[join(root, CONFIG), join(folder, OPTIONS)],
    ...[join(root, BUILDER_CONFIG), join(folder, BUILDER, OPTIONS)],
  ]
  await runNode([script, ...paths], { folder, root })
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
  await runNode(args, { folder, root })
}

async function runNode(args: string[], { folder, root }: { folder: string; root: string }): Promise<void> {
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
