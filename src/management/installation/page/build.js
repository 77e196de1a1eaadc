// Plain JavaScript, so that whatever Node runs wrangler can run it too.
import { copyFile, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const dist = fileURLToPath(new URL('../../../../dist', import.meta.url))
const library = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'))

const files = [
  ...['index.html', 'page.css', 'page.js'].map((name) => join(here, name)),
  ...['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'].map((name) => join(library, name)),
]

// Moved into place whole: another build or a server may be reading the folder.
const target = join(dist, 'page')
await mkdir(target, { recursive: true })
const scratch = await mkdtemp(join(dist, 'page-'))
for (const file of files) {
  const name = basename(file)
  await copyFile(file, join(scratch, name))
  await rename(join(scratch, name), join(target, name))
}
await rm(scratch, { recursive: true })
