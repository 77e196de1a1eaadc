// Plain JavaScript, so that any Node version that runs wrangler can run this file.
import { mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const dist = fileURLToPath(new URL('../../../../dist', import.meta.url))

const target = join(dist, 'guest')

/** Returns 0 if the file does not exist. */
const changedAt = (path) =>
  stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0,
  )
const sources = await Promise.all((await readdir(here)).map((name) => changedAt(join(here, name))))
if ((await changedAt(join(target, 'guest.txt'))) > Math.max(...sources)) process.exit()

// The program that wrangler bundles with: the one in WebAssembly takes seconds to start.
const { build } = createRequire(createRequire(import.meta.url).resolve('wrangler/package.json'))('esbuild')
// Built in a scratch folder and renamed, so that a concurrent build never reads an incomplete file.
await mkdir(target, { recursive: true })
const scratch = await mkdtemp(join(dist, 'guest-'))
await build({
  entryPoints: [fileURLToPath(new URL('index.ts', import.meta.url))],
  outfile: join(scratch, 'guest.txt'),
  bundle: true,
  format: 'esm',
  target: 'esnext',
  external: ['node:*', 'cloudflare:*'],
})
await rename(join(scratch, 'guest.txt'), join(target, 'guest.txt'))
await rm(scratch, { recursive: true })
