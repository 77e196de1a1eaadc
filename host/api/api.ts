import type { IncomingMessage, ServerResponse } from 'node:http'
import { DamagedObject, MissingObject } from '../backups/errors.ts'
import { Locked, type Locks } from '../instances/locks.ts'
import { InstanceUnavailable, Refused, UnknownInstance } from '../instances/types.ts'
import type { HostKey } from '../key.ts'
import { ApiFailure, type Call, parseBody, type Reply, readBody, send } from './http.ts'
import { Operations } from './operations.ts'

type Method = 'GET' | 'PUT' | 'POST' | 'DELETE'

/** Resolves to the body of the reply; undefined answers 204. */
type Handle = (call: Call) => Promise<unknown>

export interface Route {
  method: Method
  /** Path below `/host/v1`, such as `/instances/{name}/pause`. */
  path: string
  isMutation: boolean
  handle: Handle
  /** Ends the mutation that holds the lock, for a caller without a lock of its own. */
  endOther?: ((call: Call) => void) | undefined
}

export const route = (method: Method, path: string, handle: Handle): Route => ({
  method,
  path,
  handle,
  isMutation: false,
})

/** A route that changes an instance: it waits for other mutations of the instance, and may outlast its request. */
export const mutation = (method: Method, path: string, handle: Handle, endOther?: Route['endOther']): Route => ({
  method,
  path,
  handle,
  isMutation: true,
  endOther,
})

interface ApiOptions {
  key: HostKey
  locks: Locks
  routes: readonly Route[]
  log(event: string, fields: Record<string, unknown>): void
}

export const BASE = '/host/v1'

/** Serves the routes to callers with the host key. */
export function createApi({
  key,
  locks,
  routes,
  log,
}: ApiOptions): (req: IncomingMessage, res: ServerResponse) => void {
  const operations = new Operations()
  const matchers = routes.map((route) => ({ route, pattern: patternOf(route.path) }))

  async function answer(req: IncomingMessage): Promise<Reply> {
    const bearer = /^Bearer (.+)$/.exec(req.headers.authorization ?? '')?.[1]
    if (!key.matches(bearer)) throw new ApiFailure(401, 'unauthorized', 'The host key is missing or wrong')
    const { pathname, searchParams: query } = new URL(req.url ?? '/', 'http://host')
    const [, operation] = OPERATION.exec(pathname) ?? []
    if (operation !== undefined) return (await operations.outcome(operation)) ?? unknown('operation')
    const found = matchers.flatMap(({ route, pattern }) => {
      const match = pattern.exec(pathname)
      return match ? [{ route, params: { ...match.groups } }] : []
    })
    const hit = found.find(({ route }) => route.method === req.method)
    if (!hit)
      throw found.length > 0 ? new ApiFailure(405, 'method', 'This method is not allowed here') : unknown('path')
    const { route, params } = hit
    const lock = req.headers['x-lock']?.toString()
    const { name = '' } = params
    // Read before the wait for the lock: once a request has been answered with 202, Node discards the unread rest of its body.
    const text = await readBody(req)
    const call: Call = { name, params, query, body: async (shape) => parseBody(text, shape) }
    const handle = async (): Promise<Reply> => {
      const body = await route.handle(call)
      return { status: body === undefined ? 204 : 200, body }
    }
    if (!route.isMutation) return handle()
    if (lock === undefined) route.endOther?.(call)
    return operations.run(() => locks.under(name, lock, handle).catch((error) => failureReply(error, log)))
  }

  return (req, res) => {
    answer(req)
      .catch((error) => failureReply(error, log))
      .then((reply) => send(res, reply))
  }
}

const OPERATION = new RegExp(`^${BASE}/operations/([^/]+)$`)
const patternOf = (path: string): RegExp => new RegExp(`^${BASE}${path.replaceAll(/\{(\w+)\}/g, '(?<$1>[^/]+)')}$`)

export function unknown(what: string): never {
  throw new ApiFailure(404, `unknown_${what}`, `Unknown ${what}`)
}

function failureReply(error: unknown, log: ApiOptions['log']): Reply {
  const { status, code, message, refusals } = toApiFailure(error)
  if (status === 500 || isSystemError(error))
    log('request_failed', { error: error instanceof Error ? (error.stack ?? '') : String(error) })
  return { status, body: { error: { code, message, refusals } } }
}

function toApiFailure(error: unknown): ApiFailure {
  if (error instanceof ApiFailure) return error
  if (error instanceof UnknownInstance) return new ApiFailure(404, 'unknown_instance', error.message)
  if (error instanceof Locked) return new ApiFailure(409, 'locked', error.message)
  if (error instanceof Refused) return new ApiFailure(422, 'refused', error.message, error.refusals)
  if (error instanceof DamagedObject || error instanceof MissingObject)
    return new ApiFailure(422, 'damaged', error.message)
  if (error instanceof InstanceUnavailable) return new ApiFailure(503, 'unavailable', error.message)
  if (isSystemError(error)) return new ApiFailure(503, 'unavailable', `The host failed: ${error.message.split(',')[0]}`)
  return new ApiFailure(500, 'internal', 'The host failed; its log says why')
}

/** An error of the operating system, such as a full disk; its message ends with the path. */
const isSystemError = (error: unknown): error is NodeJS.ErrnoException => error instanceof Error && 'syscall' in error
