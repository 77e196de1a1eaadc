import type { SourceFile } from '../../../services/runtime/build-client.ts'

/** The path as it counts from the root of the source; undefined where it leads out of it, or to no file. */
export function withinSource(path: string): string | undefined {
  const kept: string[] = []
  for (const segment of path.replace(/^file:\/\//, '').split('/')) {
    if (segment === '..' && kept.pop() === undefined) return undefined
    if (!['', '.', '..'].includes(segment)) kept.push(segment)
  }
  const isFolder = /(^|\/)\.{0,2}$/.test(path)
  return isFolder || path.includes('\0') || !path.isWellFormed() ? undefined : kept.join('/')
}

/** Clients know the files of a function below this folder. */
const FOLDER = 'source'
export const inFolder = (path: string): string => `${FOLDER}/${path}`

/** What was built names the form of its source, so that a copy has the same. */
const boundaryOf = (sha256: string): string => `source-${sha256}`
export const sourceType = (sha256: string): string => `multipart/form-data; boundary=${boundaryOf(sha256)}`

interface Source {
  entrypoint: string
  files: readonly SourceFile[]
}

/** The files in the form in which clients download them. */
export function formOfSource({ entrypoint, files }: Source, sha256: string): Promise<Uint8Array<ArrayBuffer>> {
  const boundary = boundaryOf(sha256)
  const metadata = JSON.stringify({ deno2_entrypoint_path: inFolder(entrypoint) })
  const head = (disposition: string, more: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\n${more}\r\n`
  const parts = files.flatMap(({ path, bytes }) => {
    const name = encodeName(inFolder(path))
    const type = `Content-Type: ${typeOf(path)}\r\nSupabase-Path: ${name}\r\n`
    return [head(`name="file"; filename="${name}"`, type), bytes, '\r\n']
  })
  return new Blob([
    head('name="metadata"', 'Content-Type: application/json\r\n'),
    `${metadata}\r\n`,
    ...parts,
    `--${boundary}--\r\n`,
  ])
    .arrayBuffer()
    .then((buffer) => new Uint8Array(buffer))
}

/** As browsers write names into forms: what would end the header or the quotes. */
const encodeName = (name: string) => name.replace(/[\r\n"]/g, encodeURIComponent)

const TYPES: Record<string, string> = {
  ts: 'application/typescript',
  tsx: 'application/typescript',
  mts: 'application/typescript',
  js: 'text/javascript',
  jsx: 'text/javascript',
  mjs: 'text/javascript',
  json: 'application/json',
}
const typeOf = (path: string): string => TYPES[path.split('.').at(-1) ?? ''] ?? 'application/octet-stream'
