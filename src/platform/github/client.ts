import type * as z from 'zod'
import type { PlatformCtx } from '../context.ts'
import { parseJson } from '../http/parse-json.ts'
import { readText } from '../http/read-text.ts'
import { createEgressFetch } from '../net/egress.ts'
import { timeout } from '../timeout.ts'
import { appToken, type GithubApp, githubAppOf } from './app.ts'

/** Connection to the GitHub API as the App. */
export interface Github {
  app: GithubApp
  send(url: string, init: RequestInit): Promise<Response>
  now(): Date
}

/** Returns undefined if this installation has no GitHub App. */
export function openGithub(ctx: PlatformCtx): Github | undefined {
  const app = githubAppOf(ctx.config)
  return app && { app, send: createEgressFetch(ctx), now: ctx.now }
}

/** GitHub has refused the request. A retry would fail too. */
export class GithubRefused extends Error {
  override name = 'GithubRefused'
  readonly status: number

  constructor(message: string, status: number) {
    super(message)
    this.status = status
  }
}

/** GitHub cannot be reached, has an internal error, refuses the token, or limits the request rate. A retry may succeed. */
export class GithubUnavailable extends Error {
  override name = 'GithubUnavailable'
  /** Undefined if GitHub has not sent it. */
  readonly retryAfterSeconds: number | undefined

  constructor(message: string, { retryAfterSeconds, cause }: { retryAfterSeconds?: number; cause?: unknown } = {}) {
    super(message, { cause })
    this.retryAfterSeconds = retryAfterSeconds
  }
}

const TIMEOUT_MS = 20_000
const RESPONSE_BYTES_MAX = 8 * 1024 * 1024

interface ApiCall<S extends z.ZodType> {
  method?: 'GET' | 'POST'
  /** Installation token; without it the call authenticates as the App. */
  token?: string
  body?: object
  answer: S
}

/** Calls GitHub's REST API and parses the response. Rejects with GithubRefused or GithubUnavailable. */
export async function callGithub<S extends z.ZodType>(
  github: Github,
  path: string,
  { method = 'GET', token, body, answer }: ApiCall<S>,
): Promise<z.output<S>> {
  const bearer = token ?? appToken(github.app, github.now())
  const { signal, clear } = timeout(TIMEOUT_MS)
  const what = `${method} ${path.split('?')[0]}`
  try {
    const response = await github.send(`${github.app.apiUrl}${path}`, {
      method,
      headers: headersOf(bearer),
      ...(body && { body: JSON.stringify(body) }),
      redirect: 'manual',
      signal,
    })
    if (!response.ok) throw await failureOf(github, response, what)
    return read(answer, await readText(response, RESPONSE_BYTES_MAX), what)
  } catch (error) {
    throw toFailure(error, what)
  } finally {
    clear()
  }
}

export const headersOf = (bearer: string): Record<string, string> => ({
  accept: 'application/vnd.github+json',
  authorization: `Bearer ${bearer}`,
  // GitHub refuses requests without a user agent.
  'user-agent': 'Pilothouse/1.0',
  'x-github-api-version': '2022-11-28',
})

function read<S extends z.ZodType>(answer: S, text: string | undefined, what: string): z.output<S> {
  if (text === undefined)
    throw new GithubRefused(`GitHub's response to ${what} is larger than ${RESPONSE_BYTES_MAX} bytes`, 200)
  const parsed = answer.safeParse(parseJson(text))
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new GithubUnavailable(
    `GitHub's response to ${what} is not as documented: ${issue?.path.join('.')} ${issue?.message}`,
  )
}

/** Maps errors of `fetch` and of interrupted streams to GithubUnavailable. */
export const toFailure = (error: unknown, what: string): Error =>
  error instanceof GithubRefused || error instanceof GithubUnavailable
    ? error
    : new GithubUnavailable(`GitHub did not respond to ${what}`, { cause: error })

/** A secondary rate limit may be named by the message alone. */
const RATE_LIMITED = /rate limit/i
/** GitHub asks for this pause after a rate limit whose response has no time. */
const RATE_LIMITED_SECONDS = 60

/** Creates the error of an unsuccessful response. Reads or cancels its body. */
export async function failureOf({ now }: Pick<Github, 'now'>, response: Response, what: string): Promise<Error> {
  const { status, headers } = response
  const body = parseJson((await readText(response, 64 * 1024)) ?? '') as { message?: unknown } | undefined
  const reason = typeof body?.message === 'string' ? `: ${body.message.slice(0, 200)}` : ''
  const message = `GitHub responded to ${what} with status ${status}${reason}`
  const isRateLimited =
    status === 429 ||
    (status === 403 &&
      (headers.has('retry-after') || headers.get('x-ratelimit-remaining') === '0' || RATE_LIMITED.test(reason)))
  // A retry has a new token; GitHub may not know one that it has just issued.
  const isPermanent = status < 500 && status !== 401 && !isRateLimited
  if (isPermanent) return new GithubRefused(message, status)
  const retryAfterSeconds = retryAfterOf(headers, now()) ?? (isRateLimited ? RATE_LIMITED_SECONDS : undefined)
  return new GithubUnavailable(message, { ...(retryAfterSeconds !== undefined && { retryAfterSeconds }) })
}

function retryAfterOf(headers: Headers, now: Date): number | undefined {
  const after = Number(headers.get('retry-after') ?? Number.NaN)
  if (Number.isFinite(after)) return after
  const reset = Number(headers.get('x-ratelimit-remaining') === '0' ? headers.get('x-ratelimit-reset') : Number.NaN)
  return Number.isFinite(reset) ? Math.max(0, reset - now.getTime() / 1000) : undefined
}
