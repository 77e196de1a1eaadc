import type * as z from 'zod'
import { ISSUES_MAX } from '../../platform/http/error.ts'
import { readText } from '../../platform/http/read-text.ts'
import { StorageError } from './storage-error.ts'

const BODY_BYTES_MAX = 1024 * 1024

/** Parses the JSON body; errors have the wording that clients of this API know. */
export async function readJson<T extends z.ZodType>(request: Request, schema: T): Promise<z.output<T>> {
  const length = request.headers.get('content-length')
  if (Number(length ?? 0) > BODY_BYTES_MAX) throw new StorageError('EntityTooLarge')
  const text = await (length === null ? readText(request, BODY_BYTES_MAX) : request.text()).catch(() => {
    throw new StorageError('RequestAborted')
  })
  if (text === undefined) throw new StorageError('EntityTooLarge')
  return parse('body', schema, jsonIn(text))
}

/** The headers of these names that the request has. */
export const headersIn = ({ headers }: Request, names: readonly string[]): Record<string, string> =>
  Object.fromEntries(names.flatMap((name) => (headers.has(name) ? [[name, headers.get(name) as string]] : [])))

function jsonIn(text: string): unknown {
  if (text.trim() === '') return {}
  try {
    return JSON.parse(text)
  } catch {
    throw new StorageError('InvalidRequest', 'Body is not valid JSON')
  }
}

export function parse<T extends z.ZodType>(place: string, schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value, { error: messageOf })
  if (result.success) return result.data
  const messages = result.error.issues.slice(0, ISSUES_MAX).map(({ path, message }) => {
    if (path.length > 0 && valueAt(value, path) === undefined) {
      const parent = [place, ...path.slice(0, -1)].join('/')
      return `${parent} must have required property '${String(path.at(-1))}'`
    }
    return `${[place, ...path].join('/')} ${message}`
  })
  throw new StorageError('InvalidRequest', messages.join(', '))
}

/** The wording that clients know; undefined keeps the message of zod. */
function messageOf(issue: z.core.$ZodRawIssue): string | undefined {
  const { code } = issue
  const isArray = issue.origin === 'array'
  if (code === 'invalid_type') return `must be ${issue.expected === 'int' ? 'integer' : issue.expected}`
  if (code === 'invalid_value') return 'must be equal to one of the allowed values'
  if (code === 'too_small') {
    return isArray ? `must NOT have fewer than ${issue.minimum} items` : `must be >= ${issue.minimum}`
  }
  if (code === 'too_big') {
    return isArray ? `must NOT have more than ${issue.maximum} items` : `must be <= ${issue.maximum}`
  }
  return undefined
}

const valueAt = (value: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce((inner, key) => (inner as Record<PropertyKey, unknown> | undefined)?.[key], value)
