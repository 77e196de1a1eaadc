import { readChunks } from '../../platform/blobs/chunk-reader.ts'
import { FormMalformed, type PartHead, readParts, type TakePart } from './form-parts.ts'

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

const FIELDS_MAX = 10
/** Of all fields together, as they are kept. */
const FIELDS_BYTES_MAX = 1024 ** 2 + 16 * 1024

/** Reads as far as the file begins. `contentType` is that of the request, `multipart/form-data` with its boundary. */
export async function readForm(contentType: string, body: ReadableStream<Uint8Array>): Promise<Form> {
  const fields = new Map<string, string>()
  const chunks = readChunks(body)
  const arrived: Uint8Array[] = []
  let file: PartHead | undefined
  let partsCount = 0
  let kept = 0
  const parts = readParts(contentType, (head) => {
    partsCount++
    if (partsCount > FIELDS_MAX + 1) throw new FormMalformed('ReachedLimit MaxParts')
    if (!head.isFile) return takeField(head)
    if (file) throw new FormMalformed('it has more than one file')
    file = head
    return (chunk) => chunk && arrived.push(chunk)
  })

  function takeField({ name, contentType }: PartHead): TakePart {
    if (name === undefined) throw new FormMalformed('InvalidDisposition')
    const decoder = decoderOf(contentType)
    let text = ''
    return (chunk) => {
      kept += chunk?.length ?? 0
      if (kept > FIELDS_BYTES_MAX) throw new FormMalformed(`its fields are larger than ${FIELDS_BYTES_MAX} bytes`)
      text += decoder.decode(chunk, { stream: chunk !== undefined })
      if (!chunk) fields.set(name, text)
    }
  }

  async function readOn(): Promise<void> {
    try {
      const chunk = await chunks.next()
      parts.write(chunk)
      if (!chunk && !parts.isComplete()) throw new FormMalformed('EndNotReached')
    } catch (error) {
      void chunks.cancel(error).catch(() => {})
      throw error
    }
  }

  while (!file && !parts.isComplete()) await readOn()
  if (!file) return { fields, file: undefined }
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (arrived.length === 0 && !parts.isComplete()) await readOn()
        for (const chunk of arrived.splice(0)) controller.enqueue(chunk)
        if (parts.isComplete()) controller.close()
      },
      cancel: (reason) => chunks.cancel(reason),
    },
    { highWaterMark: 0 },
  )
  return { fields, file: { contentType: file.contentType ?? 'application/octet-stream', body: stream } }
}

/** An encoding that nobody knows is taken for the usual one. */
function decoderOf(contentType = ''): TextDecoder {
  const [, charset] = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(contentType) ?? []
  try {
    return new TextDecoder(charset)
  } catch {
    return new TextDecoder()
  }
}
