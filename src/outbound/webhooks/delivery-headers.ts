const COUNT_MAX = 20
const NAME_LENGTH_MAX = 128
const VALUE_BYTES_MAX = 4096
const TOTAL_BYTES_MAX = 16 * 1024
const NAME = /^[a-zA-Z0-9-]+$/
/** Excludes values that the runtime rejects when sending or that receivers misread. */
const VALUE = /^[\t\x20-\x7e]*$/

/** Headers set by the delivery, used by the connection or a proxy, or silently dropped by the runtime. */
const RESERVED_NAMES = new Set([
  'accept-encoding',
  'age',
  'cache-control',
  'cdn-loop',
  'clear-site-data',
  'connection',
  'content-encoding',
  'content-language',
  'content-length',
  'content-location',
  'content-type',
  'cookie2',
  'date',
  'expect',
  'expires',
  'forwarded',
  'host',
  'keep-alive',
  'pragma',
  'proxy-authenticate',
  'proxy-authorization',
  'set-cookie',
  'te',
  'trailer',
  'trailers',
  'transfer-encoding',
  'upgrade',
  'user-agent',
  'via',
  'warning',
])
const RESERVED_PREFIXES = [
  'webhook-',
  'svix-',
  'cf-',
  'sec-',
  'proxy-',
  'x-forwarded-',
  'x-amz-',
  'x-goog',
  'x-azure-',
] as const

/** Returns the first invalid custom header and its problem; undefined if all are valid. */
export function headerProblem(
  headers: Readonly<Record<string, string>>,
): { name: string; problem: string } | undefined {
  const seen = new Set<string>()
  let totalBytes = 0
  for (const [name, value] of Object.entries(headers)) {
    const problem = nameProblem(name, seen) ?? valueProblem(value)
    if (problem) return { name, problem }
    seen.add(name.toLowerCase())
    // Both are ASCII here, so characters equal bytes.
    totalBytes += name.length + value.length
    if (seen.size > COUNT_MAX) return { name, problem: `is too many: at most ${COUNT_MAX} headers are allowed` }
    if (totalBytes > TOTAL_BYTES_MAX)
      return { name, problem: `is too long: all headers together may have at most ${TOTAL_BYTES_MAX} bytes` }
  }
  return undefined
}

function nameProblem(name: string, seen: ReadonlySet<string>): string | undefined {
  const lower = name.toLowerCase()
  if (!NAME.test(name)) return 'must have a name of letters, digits and hyphens'
  if (name.length > NAME_LENGTH_MAX) return `must have a name of at most ${NAME_LENGTH_MAX} characters`
  if (RESERVED_NAMES.has(lower)) return 'is reserved and cannot be set'
  const prefix = RESERVED_PREFIXES.find((reserved) => lower.startsWith(reserved))
  if (prefix) return `is reserved and cannot be set, like every name that starts with ${prefix}`
  if (seen.has(lower)) return 'is set twice: names are case-insensitive'
  return undefined
}

function valueProblem(value: string): string | undefined {
  if (!VALUE.test(value)) return 'must have a value of printable ASCII characters, spaces and tabs'
  if (value.length > VALUE_BYTES_MAX) return `must have a value of at most ${VALUE_BYTES_MAX} bytes`
  return undefined
}
