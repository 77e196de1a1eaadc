import { decodeField, defaultIsFile, type MultipartError, make, type PartInfo } from 'multipasta'
import { readChunks } from '../blobs/chunks.ts'

export interface Form {
  /** Those before the file; once its body has ended, those behind it too. */
  fields: ReadonlyMap<string, string>
  file: FormFile | undefined
}

interface FormFile {
  /** As its part says, with parameters. */
  contentType: string
  /** Ends when the whole form has been read, and fails with FormMalformed like the form. */
  body: ReadableStream<Uint8Array>
}

export class FormMalformed extends Error {
  override name = 'FormMalformed'
}

const FIELDS_MAX = 10
/** Of all fields together, as they are kept. */
const FIELDS_BYTES_MAX = 1024 ** 2 + 16 * 1024

/** Reads as far as the file begins. `contentType` is that of the request, `multipart/form-data` with its boundary. */
export async function readForm(contentType: string, body: ReadableStream<Uint8Array>): Promise<Form> {
  const fields = new Map<string, string>()
  const chunks = readChunks(body)
  const arrived: Uint8Array[] = []
  let head: PartInfo | undefined
  let complete = false
  let kept = 0
  const write = dashesTogether(
    make({
      headers: { 'content-type': contentType.replace(/[\s;]+$/, '') },
      isFile: (info) => defaultIsFile(info) || /;\s*filename\*?\s*=/i.test(dispositionOf(info)),
      maxParts: FIELDS_MAX + 1,
      maxFieldSize: FIELDS_BYTES_MAX,
      onField(info, value) {
        kept += value.length
        if (kept > FIELDS_BYTES_MAX) throw new FormMalformed(`its fields are larger than ${FIELDS_BYTES_MAX} bytes`)
        fields.set(nameOf(info), decodeField(info, value))
      },
      onFile(info) {
        if (head) throw new FormMalformed('it has more than one file')
        head = info
        return (chunk) => chunk && arrived.push(chunk)
      },
      onError: refuse,
      onDone() {
        complete = true
      },
    }),
  )

  async function readOn(): Promise<void> {
    try {
      const chunk = await chunks.next()
      write(chunk)
      if (!chunk && !complete) throw new FormMalformed('EndNotReached')
    } catch (error) {
      void chunks.cancel(error).catch(() => {})
      // A file name that cannot be decoded.
      throw error instanceof URIError ? new FormMalformed(error.message) : error
    }
  }

  while (!head && !complete) await readOn()
  if (!head) return { fields, file: undefined }
  const file = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (arrived.length === 0 && !complete) await readOn()
        for (const chunk of arrived.splice(0)) controller.enqueue(chunk)
        if (complete) controller.close()
      },
      cancel: (reason) => chunks.cancel(reason),
    },
    { highWaterMark: 0 },
  )
  return { fields, file: { contentType: contentTypeOf(head), body: file } }
}

/** What the parser leaves unread: it knows names of Latin letters alone, and clients send the names of files as they are. */
function dispositionOf({ contentDisposition, headers }: PartInfo): string {
  const [header] = contentDisposition === '' ? [headers['content-disposition']].flat() : []
  return header ?? ''
}

function nameOf(info: PartInfo): string {
  const [, quoted, bare] = /;\s*name\s*=\s*(?:"([^"]*)"|([^\s;]*))/i.exec(dispositionOf(info)) ?? []
  return quoted ?? bare ?? info.name
}

function contentTypeOf({ headers }: PartInfo): string {
  const [value] = [headers['content-type'] ?? 'application/octet-stream'].flat()
  return value ?? ''
}

function refuse(error: MultipartError): never {
  const detail = 'limit' in error ? ` ${error.limit}` : 'error' in error ? ` ${error.error.reason}` : ''
  throw new FormMalformed(`${error._tag}${detail}`)
}

const DASH = 45

/** The parser takes no end of the form whose two dashes come in two chunks: those at the end of a chunk wait for more. */
function dashesTogether(parser: ReturnType<typeof make>): (chunk: Uint8Array | undefined) => void {
  let held = 0
  return function write(chunk) {
    const bytes = withDashes(held, chunk ?? new Uint8Array())
    held = 0
    while (chunk && held < 2 && bytes.at(-1 - held) === DASH) held++
    if (bytes.length > held) parser.write(bytes.subarray(0, bytes.length - held))
    // It kept what was too short to search.
    if (!chunk) parser.end()
  }
}

function withDashes(count: number, chunk: Uint8Array): Uint8Array {
  if (count === 0) return chunk
  const bytes = new Uint8Array(count + chunk.length).fill(DASH, 0, count)
  bytes.set(chunk, count)
  return bytes
}
