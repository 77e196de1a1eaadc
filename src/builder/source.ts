import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'

/** What was sent, by path from the root of the source. */
export type Source = ReadonlyMap<string, Uint8Array<ArrayBuffer>>

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const FORBIDDEN = /[\u0000-\u001f\u007f\\]/

/** Why a path cannot be one of a source; undefined for one that can. */
export function pathProblem(path: string): string | undefined {
  if (path === '') return 'is empty'
  if (path.length > LIMITS.pathLength) return `is longer than ${LIMITS.pathLength} characters`
  if (path.startsWith('/') || /^[a-z]:/i.test(path)) return 'is not relative'
  if (FORBIDDEN.test(path)) return 'has a backslash or a control character'
  const parts = path.split('/')
  if (parts.includes('..')) return 'leads out of the source'
  return parts.some((part) => part === '' || part === '.') ? 'is not in its shortest form' : undefined
}

/** Rejects with Problem for what no source may hold. */
export async function readSource(parts: Iterable<string | File>): Promise<Source> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  let bytes = 0
  for (const part of parts) {
    if (typeof part === 'string') throw new Problem('A file of the source has no path')
    const path = sourcePath(part.name)
    if (files.has(path)) throw new Problem('The source has two files of this path', { file: path })
    bytes += part.size
    if (files.size >= LIMITS.sourceFiles) throw new Problem(`The source has more than ${LIMITS.sourceFiles} files`)
    if (bytes > LIMITS.sourceBytes) throw new Problem(`The source is larger than ${LIMITS.sourceBytes / 1024 ** 2} MiB`)
    files.set(path, new Uint8Array(await part.arrayBuffer()))
  }
  return files
}

/** A path of the source as it was asked for; a leading "./" says nothing. */
export function sourcePath(path: string): string {
  const plain = path.replace(/^(\.\/)+/, '')
  const problem = pathProblem(plain)
  if (problem) throw new Problem(`The path ${JSON.stringify(path)} ${problem}`)
  return plain
}

export const urlOf = (path: string): URL => new URL(`file:///${path.split('/').map(encodeURIComponent).join('/')}`)

export function pathOf({ pathname }: URL): string {
  try {
    return decodeURIComponent(pathname.slice(1))
  } catch {
    return pathname.slice(1)
  }
}

const EXTENSIONS = ['.ts', '.tsx', '.mts', '.js', '.mjs', '.jsx', '.cjs', '.json']
/** TypeScript is imported by the name that it will have as JavaScript, too. */
const WRITTEN_AS: Record<string, readonly string[]> = { js: ['ts', 'tsx'], jsx: ['tsx'], mjs: ['mts'], cjs: ['cts'] }

/** The file that an import of `path` means. */
export function findFile(source: Source, path: string): string | undefined {
  const [, stem = '', extension = ''] = /^(.*)\.([^./]+)$/.exec(path) ?? []
  const candidates = [
    path,
    ...(WRITTEN_AS[extension] ?? []).map((other) => `${stem}.${other}`),
    ...EXTENSIONS.map((other) => path + other),
    ...EXTENSIONS.map((other) => `${path.replace(/\/$/, '')}/index${other}`),
  ]
  return candidates.find((candidate) => source.has(candidate))
}

/** The folders above a file, the nearest first; '' is the root. */
export function foldersAbove(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return [...parts.keys(), parts.length].reverse().map((length) => parts.slice(0, length).join('/'))
}

/** What lies at a relative path from a folder; undefined where that is outside of the source. */
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
