// Plain JavaScript, so that any Node version that runs wrangler can run it.
import { copyFile, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { renderDocuments } from './documents.js'

const here = fileURLToPath(new URL('.', import.meta.url))
const root = fileURLToPath(new URL('../../../..', import.meta.url))
const swagger = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'))
const minisearch = fileURLToPath(import.meta.resolve('minisearch'))

const files = [
  ...['api.html', 'api.css', 'api.js', 'documents.css', 'search.js'].map((name) => join(here, name)),
  ...['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'].map((name) => join(swagger, name)),
]

// Move each file into place in one step: another build or a server may be reading the folder.
const target = join(root, 'dist', 'page')
await mkdir(target, { recursive: true })
const scratch = await mkdtemp(join(root, 'dist', 'page-'))
const written = new Set()
const put = async (name, write) => {
  written.add(join(target, name))
  const made = join(scratch, basename(name))
  await write(made)
  await mkdir(dirname(join(target, name)), { recursive: true })
  await rename(made, join(target, name))
}

for (const file of files) await put(basename(file), (made) => copyFile(file, made))
const { files: documents, sections } = await renderDocuments(join(root, 'docs'))
for (const { name, text } of documents) await put(name, (made) => writeFile(made, text))
await put('search.json', (made) => writeFile(made, JSON.stringify(sections)))
await put('minisearch.js', (made) => copyFile(minisearch, made))
await rm(scratch, { recursive: true })

// Remove pages of earlier builds, whose sources no longer exist.
for (const entry of await readdir(target, { recursive: true, withFileTypes: true })) {
  const path = join(entry.parentPath, entry.name)
  if (entry.isFile() && !written.has(path)) await rm(path, { force: true })
}
