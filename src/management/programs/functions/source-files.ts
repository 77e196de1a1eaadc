import type { SourceFile } from '../../../services/runtime/build-client.ts'

/** Normalizes a path relative to the root of the source, or a URL of `urlOf`; undefined if it is outside or not a file. */
export function normalizeSourcePath(pathOrUrl: string): string | undefined {
  const path = fromUrl(pathOrUrl)
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
const inFolder = (path: string): string => `${FOLDER}/${path}`

/** Returns the URL of a source file in replies. Clients construct the same folder and strip it. */
export function urlOf({ projectRef, id, version }: Version, path: string): string {
  const segments = inFolder(path).split('/').map(encodeURIComponent)
  return `file:///tmp/user_fn_${projectRef}_${id}_${version}/${segments.join('/')}`
}

interface Version {
  projectRef: string
  id: string
  version: number
}

/** Returns the path of a URL of `urlOf`, of whatever version; empty if its encoding is invalid. Other text is returned unchanged. */
function fromUrl(pathOrUrl: string): string {
  const [, encoded] = /^file:\/\/\/tmp\/user_fn_[a-z]{20}_[\da-f-]{36}_\d+\/source\/(.*)$/.exec(pathOrUrl) ?? []
  try {
    return encoded === undefined ? pathOrUrl : decodeURIComponent(encoded)
  } catch {
    return ''
  }
}

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
