import { make as headersParser } from 'multipasta/HeadersParser'
import { make as searchFor } from 'multipasta/Search'

export class FormMalformed extends Error {
  override name = 'FormMalformed'
}

export interface PartHead {
  name: string | undefined
  isFile: boolean
  /** As it says, with parameters. */
  contentType: string | undefined
}

/** Undefined at the end of the part. */
export type TakePart = (chunk: Uint8Array | undefined) => void

export interface PartsReader {
  /** Undefined where no more comes. */
  write(chunk: Uint8Array | undefined): void
  /** The end of the form has come. */
  isComplete(): boolean
}

const DASH = 45

/** `contentType` is that of the form, with its boundary. `onPart` says who takes the part that begins. */
export function readParts(contentType: string, onPart: (head: PartHead) => TakePart): PartsReader {
  const boundary = /;\s*boundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))/i.exec(contentType)
  if (!boundary) throw new FormMalformed('InvalidBoundary')
  let current = 0
  let complete = false
  /** What stands behind a boundary: the end of its line, or the two dashes of the last one. */
  let mark: number[] = []
  let parseHead = headersParser()
  let take: TakePart | undefined

  function begin(index: number): void {
    take?.(undefined)
    ;[current, mark, parseHead, take] = [index, [], headersParser(), undefined]
  }

  function read(index: number, chunk: Uint8Array): void {
    // Nothing that stands in front of the first boundary, or behind the last one, is of the form.
    if (index === 0 || complete) return
    if (index !== current) begin(index)
    if (take) take(chunk)
    else readBegin(chunk)
  }

  function readBegin(chunk: Uint8Array): void {
    const missing = chunk.subarray(0, 2 - mark.length)
    mark.push(...missing)
    complete = mark.length === 2 && mark.every((byte) => byte === DASH)
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

  const search = searchFor(`\r\n--${boundary[1] ?? boundary[2]}`, read)
  // In front of the first boundary there need not be one.
  search.write(new TextEncoder().encode('\r\n'))
  return {
    write(chunk) {
      if (chunk) search.write(chunk)
      // It kept what was too short to search.
      else search.end()
    },
    isComplete: () => complete,
  }
}

/** Clients send the names of files as they are, in any letters, and some give the part none. */
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
