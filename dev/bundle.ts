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
/** The folder of the builder's bundle in that of the Worker's. */
export const BUILDER = 'builder'

interface BuildOptions {
  /** Where the bundle goes. */
  folder: string
  root?: string
  /** Another entry file than that of wrangler.toml. */
  entry?: string
}

/** Tells, in the folder of a bundle, what that was made of. */
const MADE_OF = 'made-of.txt'

/** Bundles the Worker, and the builder beside it, as a deployment does. Keeps an intact bundle of the same sources. */
export async function buildWorker({ folder, root = ROOT, entry }: BuildOptions): Promise<void> {
  const mark = join(folder, MADE_OF)
  const sources = entry ? undefined : await fingerprint(root, SOURCES)
  const made = async () => [sources, await fingerprint(root, BUILT), await bundleFingerprint(folder)].join(' ')
  if (sources && (await readFile(mark, 'utf8').catch(() => '')) === (await made())) return
  await rm(folder, { recursive: true, force: true })
  await Promise.all([
    bundle(CONFIG, { folder, root, entry }),
    bundle(BUILDER_CONFIG, { folder: join(folder, BUILDER), root }),
  ])
  if (sources) await writeFile(mark, await made())
}

/** All that a bundle is made of; npm notes in the last one what it has installed. */
const SOURCES = ['src', 'docs', CONFIG, 'package.json', 'tsconfig.json', 'node_modules/.package-lock.json']
/** What is made with a bundle, outside its folder. */
const BUILT = ['dist/page']

/** One text for the names and bytes of all files at these paths, or in folders there; undefined if one of the paths is missing. */
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
    return names.filter((name) => !BESIDE.test(name)).map((name) => join(part, name))
  }
  return fingerprint(folder, [...(await namesIn('')), ...(await namesIn(BUILDER))].sort())
}

/** Files that nothing runs, such as wrangler's own. */
const BESIDE = new RegExp(`^(config|${BUILDER}|${MADE_OF})$|\\.map$`)

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
  // Everything wrangler writes stays in the folder: not every user who runs services has a home.
  const places = { XDG_CONFIG_HOME: join(folder, 'config'), WRANGLER_WRITE_LOGS: 'false' }
  const env = { ...process.env, ...places, CI: '1', NO_COLOR: '1', WRANGLER_SEND_METRICS: 'false' }
  try {
    await promisify(execFile)(process.execPath, args, { cwd: root, env })
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : ''
    throw new StartError(`The Worker does not build: ${output || errorMessage(error)}`)
  }
}
