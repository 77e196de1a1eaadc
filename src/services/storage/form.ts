import { readChunks } from '../../platform/blobs/chunk-reader.ts'
import { FormMalformed, type PartHead, readParts, type TakePart } from './form-parts.ts'

export interface Form {
  /** The fields before the file. Fields after it are added while its body is read. */
  fields: ReadonlyMap<string, string>
  file: FormFile | undefined
}

interface FormFile {
  /** The `Content-Type` of its part, with parameters. */
  contentType: string
  /** Ends when the whole form was read; fails with FormMalformed if the rest of the form is malformed. */
  body: ReadableStream<Uint8Array>
}

const FIELDS_MAX = 10
/** Bound of the values of all fields together, which are held in memory. */
const FIELDS_BYTES_MAX = 1024 ** 2 + 16 * 1024
/** Bound of the bytes outside the values: the boundaries, the heads of the parts and the text before the first of them. */
const OVERHEAD_BYTES_MAX = 256 * 1024

/** Reads until the file begins. `contentType` is that of the request: `multipart/form-data` with its boundary. */
export async function readForm(contentType: string, body: ReadableStream<Uint8Array>): Promise<Form> {
  const fields = new Map<string, string>()
  const chunks = readChunks(body)
  const fileChunks: Uint8Array[] = []
  let file: PartHead | undefined
  let partsCount = 0
  let fieldBytes = 0
  let overheadBytes = 0
  const parts = readParts(contentType, (head) => {
    partsCount++
    if (partsCount > FIELDS_MAX + 1) throw new FormMalformed('ReachedLimit MaxParts')
    const take = head.isFile ? takeFile(head) : takeField(head)
    return (chunk) => {
      overheadBytes -= chunk?.length ?? 0
      take(chunk)
    }
  })

  function takeFile(head: PartHead): TakePart {
    if (file) throw new FormMalformed('it must have only one file')
    file = head
    return (chunk) => chunk && fileChunks.push(chunk)
  }

  function takeField({ name, contentType }: PartHead): TakePart {
    if (name === undefined) throw new FormMalformed('InvalidDisposition')
    const decoder = decoderOf(contentType)
    let text = ''
    return (chunk) => {
      fieldBytes += chunk?.length ?? 0
      if (fieldBytes > FIELDS_BYTES_MAX)
        throw new FormMalformed(`the fields must have at most ${FIELDS_BYTES_MAX} bytes`)
      text += decoder.decode(chunk, { stream: chunk !== undefined })
      if (!chunk) fields.set(name, text)
    }
  }

  async function readChunk(): Promise<void> {
    try {
      const chunk = await chunks.next()
      overheadBytes += chunk?.length ?? 0
      parts.write(chunk)
      if (overheadBytes > OVERHEAD_BYTES_MAX && !parts.isComplete())
        throw new FormMalformed(`it must have at most ${OVERHEAD_BYTES_MAX} bytes outside its values`)
      if (!chunk && !parts.isComplete()) throw new FormMalformed('EndNotReached')
    } catch (error) {
      void chunks.cancel(error).catch(() => {})
      throw error
    }
  }

  while (!file && !parts.isComplete()) await readChunk()
  if (!file) return { fields, file: undefined }
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (fileChunks.length === 0 && !parts.isComplete()) await readChunk()
        for (const chunk of fileChunks.splice(0)) controller.enqueue(chunk)
        if (parts.isComplete()) controller.close()
      },
      cancel: (reason) => chunks.cancel(reason),
    },
    { highWaterMark: 0 },
  )
  return { fields, file: { contentType: file.contentType ?? 'application/octet-stream', body: stream } }
}

/** Falls back to UTF-8 for an unknown charset. */
function decoderOf(contentType = ''): TextDecoder {
  const [, charset] = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(contentType) ?? []
  try {
    return new TextDecoder(charset)
  } catch {
    return new TextDecoder()
  }
}
