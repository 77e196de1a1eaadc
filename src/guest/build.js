// Plain JavaScript, so that whatever Node runs wrangler can run it too.
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild-wasm'

const dist = fileURLToPath(new URL('../../dist', import.meta.url))

// Moved into place whole: another build may be reading it.
const target = join(dist, 'guest')
await mkdir(target, { recursive: true })
const scratch = await mkdtemp(join(dist, 'guest-'))
await build({
  entryPoints: [fileURLToPath(new URL('index.ts', import.meta.url))],
  outfile: join(scratch, 'guest.txt'),
  bundle: true,
  format: 'esm',
  target: 'esnext',
  external: ['node:*'],
})
await rename(join(scratch, 'guest.txt'), join(target, 'guest.txt'))
await rm(scratch, { recursive: true })
