import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'

/** Uploaded files by path from the root of the source. */
export type Source = ReadonlyMap<string, Uint8Array<ArrayBuffer>>

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern searches for control characters.
const FORBIDDEN = /[\u0000-\u001f\u007f\\]/

/** Says what a valid path of a source must be; undefined if the path is valid. */
export function pathProblem(path: string): string | undefined {
  if (path === '') return 'must not be empty'
  if (path.length > LIMITS.pathLength) return `must have at most ${LIMITS.pathLength} characters`
  if (path.startsWith('/') || /^[a-z]:/i.test(path)) return 'must be relative'
  if (FORBIDDEN.test(path)) return 'must not contain backslashes or control characters'
  const parts = path.split('/')
  if (parts.includes('..')) return 'must stay within the source'
  return parts.some((part) => part === '' || part === '.') ? 'must not contain empty or "." segments' : undefined
}

/** Reads the uploaded files. Rejects with Problem if they are invalid. */
export async function readSource(parts: Iterable<string | File>): Promise<Source> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  let bytes = 0
  for (const part of parts) {
    if (typeof part === 'string') throw new Problem('Invalid file: must have a path as its file name')
    const path = sourcePath(decodeURI(part.name))
    if (files.has(path)) throw new Problem('The source has two files with this path', { file: path })
    bytes += part.size
    if (files.size >= LIMITS.sourceFiles) throw new Problem(`The source has more than ${LIMITS.sourceFiles} files`)
    if (bytes > LIMITS.sourceBytes) throw new Problem(`The source is larger than ${LIMITS.sourceBytes / 1024 ** 2} MiB`)
    files.set(path, new Uint8Array(await part.arrayBuffer()))
  }
  return files
}

/** Normalizes a path of the source: removes a leading "./". Throws Problem if the path is invalid. */
export function sourcePath(path: string): string {
  const plain = path.replace(/^(\.\/)+/, '')
  const problem = pathProblem(plain)
  if (problem) throw new Problem(`Invalid path ${JSON.stringify(path)}: ${problem}`)
  return plain
}

/** The `file:` URL of a path of the source. */
export const urlOf = (path: string): URL => new URL(`file:///${path.split('/').map(encodeURIComponent).join('/')}`)

/** The path of a `file:` URL, relative to the root of the source. */
export function pathOf({ pathname }: Pick<URL, 'pathname'>): string {
  try {
    return decodeURIComponent(pathname.slice(1))
  } catch {
    return pathname.slice(1)
  }
}

const EXTENSIONS = ['.ts', '.tsx', '.mts', '.js', '.mjs', '.jsx', '.cjs', '.json']
/** TypeScript extensions by the JavaScript extension that an import may use instead. */
const TYPESCRIPT_EXTENSIONS: Record<string, readonly string[]> = {
  js: ['ts', 'tsx'],
  jsx: ['tsx'],
  mjs: ['mts'],
  cjs: ['cts'],
}

/** Returns the file that an import of `path` refers to. */
export function findFile(source: Source, path: string): string | undefined {
  const [, stem = '', extension = ''] = /^(.*)\.([^./]+)$/.exec(path) ?? []
  const candidates = [
    path,
    ...(TYPESCRIPT_EXTENSIONS[extension] ?? []).map((other) => `${stem}.${other}`),
    ...EXTENSIONS.map((other) => path + other),
    ...EXTENSIONS.map((other) => `${path.replace(/\/$/, '')}/index${other}`),
  ]
  return candidates.find((candidate) => source.has(candidate))
}

/** Returns the folders above a file, nearest first; '' is the root. */
export function foldersAbove(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return [...parts.keys(), parts.length].reverse().map((length) => parts.slice(0, length).join('/'))
}

/** Returns the nearest file of one of these names in the folders above a file. */
export const nearestFile = (
  files: ReadonlyMap<string, unknown>,
  path: string,
  ...names: string[]
): string | undefined =>
  foldersAbove(path)
    .flatMap((folder) => names.map((name) => inFolder(folder, name)))
    .find((file) => files.has(file))

/** Resolves a relative path from a folder; undefined if it leads out of the source. */
export function pathFrom(folder: string, relative: string): string | undefined {
  if (relative.startsWith('/')) return undefined
  const parts = folder === '' ? [] : folder.split('/')
  for (const part of relative.split('/')) {
    if (part === '..' && parts.pop() === undefined) return undefined
    if (part !== '..' && part !== '.' && part !== '') parts.push(part)
  }
  return parts.join('/')
}

export const folderOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')))
export const inFolder = (folder: string, name: string): string => (folder === '' ? name : `${folder}/${name}`)
export const textOf = (bytes: Uint8Array | undefined): string => new TextDecoder().decode(bytes)
