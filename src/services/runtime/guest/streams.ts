import { current, within } from './invocation.ts'
import { printError } from './print-error.ts'

const { ReadableStream: Plain, TransformStream: PlainTransform } = globalThis as unknown as Streams
interface Streams {
  ReadableStream: typeof ReadableStream
  TransformStream: typeof TransformStream
}

/** Which the program itself fills. What the runtime fills it passes on by itself, and knows its length. */
const own = new WeakSet<ReadableStream>()

export function installStreams(): void {
  const ReadableStream = new Proxy(Plain, {
    construct(target, given, made) {
      const stream: ReadableStream = Reflect.construct(target, given, made)
      own.add(stream)
      return stream
    },
  })
  const TransformStream = new Proxy(PlainTransform, {
    construct(target, given, made) {
      const stream: TransformStream = Reflect.construct(target, given, made)
      if (given[0]) own.add(stream.readable)
      return stream
    },
  })
  Object.assign(globalThis, { ReadableStream, TransformStream })
}

/** Rejects where the stream of the answer fails before anything of it could have gone; what fails later is printed, and breaks it off. */
export async function begun(response: Response): Promise<Response> {
  const { body } = response
  if (!body || !own.has(body) || body.locked) return response
  const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader()
  const read = () => reader.read().then(bytesIn)
  let next: ReturnType<typeof read> | undefined = read()
  await Promise.race([next, nextTurn()])
  const invocation = current()
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    try {
      const { done, value } = await (next ?? read())
      next = undefined
      if (done) controller.close()
      else controller.enqueue(value)
    } catch (error) {
      if (invocation) within(invocation, () => printError(error))
      // Its words would stand in the log of the host.
      throw new Error('the stream of an answer has failed')
    }
  }
  const cancel = (reason: unknown) => reader.cancel(reason)
  return new Response(new Plain({ pull, cancel }, { highWaterMark: 0 }), response)
}

function bytesIn<T extends { value?: unknown }>(read: T): T {
  const value: unknown = read.value
  const isSendable = value === undefined || typeof value === 'string' || ArrayBuffer.isView(value)
  if (isSendable || value instanceof ArrayBuffer) return read
  throw new TypeError('The stream of an answer must give bytes')
}

const nextTurn = () => new Promise((resolve) => setTimeout(resolve))
