import { make as headersParser } from 'multipasta/HeadersParser'
import { make as searchFor } from 'multipasta/Search'

export class FormMalformed extends Error {
  override name = 'FormMalformed'
}

export interface PartHead {
  name: string | undefined
  isFile: boolean
  /** The part's `Content-Type`, with parameters. */
  contentType: string | undefined
}

/** Receives the chunks of a part; undefined at its end. */
export type TakePart = (chunk: Uint8Array | undefined) => void

export interface PartsReader {
  /** Takes the next chunk; undefined at the end of the body. */
  write(chunk: Uint8Array | undefined): void
  /** Whether the last boundary was read. */
  isComplete(): boolean
}

const DASH = 45

/** `contentType` is that of the request, with its boundary. `onPart` returns the receiver of a part that begins. */
export function readParts(contentType: string, onPart: (head: PartHead) => TakePart): PartsReader {
  const boundary = /;\s*boundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))/i.exec(contentType)
  if (!boundary) throw new FormMalformed('InvalidBoundary')
  let current = 0
  let complete = false
  /** The two bytes after a boundary: a line break, or the dashes of the last boundary. */
  let suffix: number[] = []
  let parseHead = headersParser()
  let take: TakePart | undefined

  function beginPart(index: number): void {
    take?.(undefined)
    ;[current, suffix, parseHead, take] = [index, [], headersParser(), undefined]
  }

  function readPart(index: number, chunk: Uint8Array): void {
    // Bytes before the first boundary and after the last one are not part of the form.
    if (index === 0 || complete) return
    if (index !== current) beginPart(index)
    if (take) take(chunk)
    else readSuffix(chunk)
  }

  function readSuffix(chunk: Uint8Array): void {
    const missing = chunk.subarray(0, 2 - suffix.length)
    suffix.push(...missing)
    complete = suffix.length === 2 && suffix.every((byte) => byte === DASH)
    const bytes = chunk.subarray(missing.length)
    if (!complete && bytes.length > 0) readHead(bytes)
  }

  function readHead(bytes: Uint8Array): void {
    const result = parseHead(bytes, 0)
    if (result._tag === 'Continue') return
    if (result._tag === 'Failure') throw new FormMalformed(`BadHeaders ${result.reason}`)
    take = onPart(headOf(result.headers))
    if (result.endPosition < bytes.length) take(bytes.subarray(result.endPosition))
  }

  const search = searchFor(`\r\n--${boundary[1] ?? boundary[2]}`, readPart)
  // The first boundary need not follow a line break.
  search.write(new TextEncoder().encode('\r\n'))
  return {
    write(chunk) {
      if (chunk) search.write(chunk)
      // The search holds back bytes that may begin a boundary.
      else search.end()
    },
    isComplete: () => complete,
  }
}

/** Reads the headers of a part leniently: clients send file names unencoded in any script, and some send a file without a name. */
function headOf(headers: Record<string, string | string[]>): PartHead {
  const first = (name: string) => [headers[name]].flat()[0]
  const parameters = new Map<string, string>()
  const disposition = first('content-disposition') ?? ''
  for (const [, key = '', quoted, bare = ''] of disposition.matchAll(
    /;\s*([^\s=;]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]*))/g,
  )) {
    parameters.set(key.toLowerCase(), quoted ?? bare)
  }
  const contentType = first('content-type')
  const isFile =
    parameters.has('filename') ||
    parameters.has('filename*') ||
    /^\s*application\/octet-stream\s*(;|$)/i.test(contentType ?? '')
  return { name: parameters.get('name'), isFile, contentType }
}
