import type { SourceFile } from '../../../services/runtime/build-client.ts'

/** Normalizes a path relative to the root of the source; undefined if it is outside or not a file. */
export function normalizeSourcePath(path: string): string | undefined {
  const segments: string[] = []
  for (const segment of path.replace(/^file:\/\//, '').split('/')) {
    if (segment === '..' && segments.pop() === undefined) return undefined
    if (!['', '.', '..'].includes(segment)) segments.push(segment)
  }
  const isFolder = /(^|\/)\.{0,2}$/.test(path)
  return isFolder || path.includes('\0') || !path.isWellFormed() ? undefined : segments.join('/')
}

/** The folder that clients expect above the files of a function. */
const FOLDER = 'source'
export const inFolder = (path: string): string => `${FOLDER}/${path}`

interface Source {
  entrypoint: string
  files: readonly SourceFile[]
}

/** Encodes the files as the multipart form that clients download. */
export async function encodeSource({ entrypoint, files }: Source) {
  // No file may contain the boundary, so it must be unpredictable.
  const boundary = `source-${crypto.randomUUID()}`
  const metadata = JSON.stringify({ deno2_entrypoint_path: inFolder(entrypoint) })
  const head = (disposition: string, more: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\n${more}\r\n`
  const parts = files.flatMap(({ path, bytes }) => {
    const name = encodeName(inFolder(path))
    const type = `Content-Type: ${typeOf(path)}\r\nSupabase-Path: ${name}\r\n`
    return [head(`name="file"; filename="${name}"`, type), bytes, '\r\n']
  })
  const form = new Blob([
    head('name="metadata"', 'Content-Type: application/json\r\n'),
    `${metadata}\r\n`,
    ...parts,
    `--${boundary}--\r\n`,
  ])
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    bytes: new Uint8Array(await form.arrayBuffer()),
  }
}

/** Escapes characters that would end the quoted name or the header, as browsers do. */
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
