import type { MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { ApiError } from '../../platform/http/error.ts'
import { withTimeout } from '../../platform/timeout.ts'
import type { AppEnv } from './app-env.ts'
import { bodyTimeout, decodeUtf8 } from './body.ts'

const MIB = 1024 * 1024

type Middleware = MiddlewareHandler<AppEnv>

interface Options {
  isOptional: boolean
  sizeBytesMax?: number | undefined
}

/** Receives a JSON body and validates it. With `isOptional`, an empty body counts as omitted. */
export function readJson(validate: Middleware, { isOptional, sizeBytesMax = MIB }: Options): Middleware[] {
  const receive = receiveBody(sizeBytesMax)
  if (!isOptional) return [requireJson, receive, requireUtf8, validate]
  return [receive, ...[requireJson, requireUtf8, validate].map(unlessEmpty)]
}

/** Receives the whole body within a time that grows with its size. A body that breaks off is refused when it is parsed. */
function receiveBody(sizeBytesMax: number): Middleware {
  const limit = bodyLimit({
    maxSize: sizeBytesMax,
    onError: () => {
      throw new ApiError('payload_too_large', { detail: `at most ${sizeBytesMax} bytes` })
    },
  })
  return async function receiveBody(c, next) {
    const received = async () => {
      await limit(c, async () => {})
      await c.req.arrayBuffer().catch(() => {})
    }
    const declared = Number(c.req.header('content-length') ?? sizeBytesMax)
    const seconds = c.var.ctx.config.BODY_TIMEOUT_SECONDS * Math.max(1, Math.ceil(declared / MIB))
    await withTimeout(seconds * 1000, received(), () => bodyTimeout(seconds))
    await next()
  }
}

const unlessEmpty =
  (read: Middleware): Middleware =>
  async (c, next) => {
    const isEmpty = await c.req.arrayBuffer().then(
      ({ byteLength }) => byteLength === 0,
      () => false,
    )
    return isEmpty ? next() : read(c, next)
  }

const requireJson: Middleware = async (c, next) => {
  const type = c.req.header('content-type')
  if (!type || !/^application\/([\w.-]+\+)?json\s*(;|$)/i.test(type)) {
    throw new ApiError('unsupported_media_type', {
      detail: `send application/json; ${type ? `its content-type is ${type}` : 'it has no content-type'}`,
    })
  }
  await next()
}

/** Refuses invalid UTF-8, which the validator would silently turn into replacement characters. */
const requireUtf8: Middleware = async (c, next) => {
  try {
    decodeUtf8(await c.req.arrayBuffer())
  } catch (cause) {
    throw new ApiError('bad_request.malformed_json', { cause })
  }
  await next()
}
