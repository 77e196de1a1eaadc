import { currentInvocation, runInInvocation } from './invocation.ts'
import { printError } from './print-error.ts'

const { ReadableStream: Plain, TransformStream: PlainTransform } = globalThis as unknown as Streams
interface Streams {
  ReadableStream: typeof ReadableStream
  TransformStream: typeof TransformStream
}

/**
 * Streams filled by the program. Streams of the runtime are left alone: it passes them on natively and knows their
 * length.
 */
const own = new WeakSet<ReadableStream>()

export function installStreams(): void {
  const ReadableStream = new Proxy(Plain, {
    construct(target, args, newTarget) {
      const stream: ReadableStream = Reflect.construct(target, args, newTarget)
      own.add(stream)
      return stream
    },
  })
  const TransformStream = new Proxy(PlainTransform, {
    construct(target, args, newTarget) {
      const stream: TransformStream = Reflect.construct(target, args, newTarget)
      if (args[0]) own.add(stream.readable)
      return stream
    },
  })
  Object.assign(globalThis, { ReadableStream, TransformStream })
}

/**
 * Waits briefly for the first chunk, and rejects if the stream fails before it. A later failure is printed and aborts
 * the response.
 */
export async function afterFirstChunk(response: Response): Promise<Response> {
  const { body } = response
  if (!body || !own.has(body) || body.locked) return response
  const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader()
  const read = () => reader.read().then(bytesIn)
  let next: ReturnType<typeof read> | undefined = read()
  await Promise.race([next, nextTurn()])
  const invocation = currentInvocation()
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    try {
      const { done, value } = await (next ?? read())
      next = undefined
      if (done) controller.close()
      else controller.enqueue(value)
    } catch (error) {
      if (invocation) runInInvocation(invocation, () => printError(error))
      // The program's error text must not appear in the host's log.
      throw new Error('the response stream failed')
    }
  }
  const cancel = (reason: unknown) => reader.cancel(reason)
  return new Response(new Plain({ pull, cancel }, { highWaterMark: 0 }), response)
}

function bytesIn<T extends { value?: unknown }>(read: T): T {
  const value: unknown = read.value
  const isSendable = value === undefined || typeof value === 'string' || ArrayBuffer.isView(value)
  if (isSendable || value instanceof ArrayBuffer) return read
  throw new TypeError('The response stream must provide bytes')
}

const nextTurn = () => new Promise((resolve) => setTimeout(resolve))
