type Result = string | ArrayBuffer
const EVENTS = ['loadstart', 'progress', 'load', 'abort', 'error', 'loadend'] as const
type Kind = (typeof EVENTS)[number]

export class ProgressEvent extends Event {
  readonly lengthComputable: boolean
  readonly loaded: number
  readonly total: number

  constructor(
    type: string,
    { lengthComputable = false, loaded = 0, total = 0, ...init }: EventInit & Partial<Progress> = {},
  ) {
    super(type, init)
    this.lengthComputable = lengthComputable
    this.loaded = loaded
    this.total = total
  }
}

interface Progress {
  lengthComputable: boolean
  loaded: number
  total: number
}

/** FileReader, which the runtime lacks. https://w3c.github.io/FileAPI/#APIASynch */
export class FileReader extends EventTarget {
  static readonly EMPTY = 0
  static readonly LOADING = 1
  static readonly DONE = 2
  readonly EMPTY = 0
  readonly LOADING = 1
  readonly DONE = 2
  readyState: 0 | 1 | 2 = 0
  result: Result | null = null
  error: unknown = null
  /** The current read; earlier ones were aborted. */
  #reading: object | undefined

  constructor() {
    super()
    for (const kind of EVENTS) defineHandler(this, kind)
  }

  readAsArrayBuffer(blob: Blob): void {
    this.#read(blob, (bytes) => bytes)
  }

  readAsText(blob: Blob, encoding?: string): void {
    const label = encoding ?? /charset=([^;]+)/i.exec(blob.type)?.[1]
    this.#read(blob, (bytes) => decoderOf(label).decode(bytes))
  }

  readAsDataURL(blob: Blob): void {
    const type = blob.type || 'application/octet-stream'
    this.#read(blob, (bytes) => `data:${type};base64,${Buffer.from(bytes).toString('base64')}`)
  }

  readAsBinaryString(blob: Blob): void {
    this.#read(blob, (bytes) => Buffer.from(bytes).toString('latin1'))
  }

  abort(): void {
    this.result = null
    if (this.readyState !== this.LOADING) return
    this.readyState = this.DONE
    this.#reading = undefined
    this.#dispatch('abort')
    if (!this.#reading) this.#dispatch('loadend')
  }

  #read(blob: Blob, resultOf: (bytes: ArrayBuffer) => Result): void {
    if (!(blob instanceof Blob)) throw new TypeError('The argument must be a Blob')
    if (this.readyState === this.LOADING)
      throw new DOMException('The FileReader is already reading', 'InvalidStateError')
    Object.assign(this, { readyState: this.LOADING, result: null, error: null })
    const reading = {}
    this.#reading = reading
    const ended = (outcome: { result: Result } | { error: unknown }, size = 0) => {
      if (this.#reading !== reading) return
      if (size > 0) this.#dispatch('progress', size)
      Object.assign(this, { readyState: this.DONE, ...outcome })
      this.#reading = undefined
      this.#dispatch('result' in outcome ? 'load' : 'error', size)
      // A listener may have started another read.
      if (!this.#reading) this.#dispatch('loadend', size)
    }
    queueMicrotask(() => this.#reading === reading && this.#dispatch('loadstart'))
    blob.arrayBuffer().then(
      (bytes) => ended({ result: resultOf(bytes) }, blob.size),
      (error) => ended({ error }),
    )
  }

  #dispatch(kind: Kind, size = 0): void {
    this.dispatchEvent(new ProgressEvent(kind, { lengthComputable: size > 0, loaded: size, total: size }))
  }
}

/** Falls back to UTF-8 for unknown encodings. */
function decoderOf(label: string | undefined): TextDecoder {
  try {
    return new TextDecoder(label)
  } catch {
    return new TextDecoder()
  }
}

/** Defines a handler property such as `onload`. */
function defineHandler(reader: FileReader, kind: Kind): void {
  let handler: unknown = null
  reader.addEventListener(kind, (event) => typeof handler === 'function' && handler.call(reader, event))
  const set = (value: unknown) => {
    handler = value
  }
  Object.defineProperty(reader, `on${kind}`, { get: () => handler, set, configurable: true, enumerable: true })
}
