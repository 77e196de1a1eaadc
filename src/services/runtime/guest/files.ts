import { errors } from './errors.ts'

/** The program's static files, by path from the root of its source. */
export type Files = Readonly<Record<string, ArrayBuffer>>

interface Source {
  files: Files
  /** Path of the program's entry module in its source. */
  entrypoint: string
}

/**
 * Reads static files. Paths are relative to the root of the source, to the entry module's folder, or to that folder's
 * parent.
 */
export function createFileReader({ files, entrypoint }: Source) {
  const bases = ['', folderOf(entrypoint), folderOf(folderOf(entrypoint))]
  const find = (path: string | URL): Uint8Array => {
    const requested = path instanceof URL ? decodeURIComponent(path.pathname) : path.replace(/^file:\/\//, '')
    for (const base of bases) {
      const found = files[normalize(`${base}/${requested}`)]
      if (found) return new Uint8Array(found.slice(0))
    }
    throw new errors.NotFound(`No such file or directory (os error 2): readfile '${requested}'`)
  }
  const findText = (path: string | URL): string => new TextDecoder().decode(find(path))
  return {
    readFileSync: find,
    readFile: async (path: string | URL) => find(path),
    readTextFileSync: findText,
    readTextFile: async (path: string | URL) => findText(path),
  }
}

const folderOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')))

function normalize(path: string): string {
  const parts: string[] = []
  for (const part of path.split('/')) {
    if (part === '..') parts.pop()
    else if (part !== '' && part !== '.') parts.push(part)
  }
  return parts.join('/')
}
