import type * as z from 'zod'
import type { PlatformCtx } from '../context.ts'
import { readText } from '../http/read-text.ts'
import { sendOf } from '../net/egress.ts'
import { timeout } from '../timeout.ts'
import { appOf, appToken, type GithubApp } from './app.ts'

/** How GitHub is reached. */
export interface Github {
  app: GithubApp
  send(url: string, init: RequestInit): Promise<Response>
  now(): Date
}

/** Undefined where this installation has no GitHub App. */
export function openGithub(ctx: PlatformCtx): Github | undefined {
  const app = appOf(ctx.config)
  return app && { app, send: sendOf(ctx), now: ctx.now }
}

/** GitHub has refused, and would do so again. */
export class GithubRefused extends Error {
  override name = 'GithubRefused'
  readonly status: number

  constructor(message: string, status: number) {
    super(message)
    this.status = status
  }
}

/** GitHub cannot be reached, is in trouble, or has been asked too much for now. */
export class GithubUnavailable extends Error {
  override name = 'GithubUnavailable'
  /** Undefined where GitHub has said nothing of it. */
  readonly retryAfterSeconds: number | undefined

  constructor(message: string, { retryAfterSeconds, cause }: { retryAfterSeconds?: number; cause?: unknown } = {}) {
    super(message, { cause })
    this.retryAfterSeconds = retryAfterSeconds
  }
}

const TIMEOUT_MS = 20_000
const ANSWER_BYTES_MAX = 8 * 1024 * 1024

interface Question<S extends z.ZodType> {
  method?: 'GET' | 'POST'
  /** Of an installation; without it the App asks in its own name. */
  token?: string
  body?: object
  answer: S
}

/** What GitHub's REST API answers. Rejects with GithubRefused or GithubUnavailable. */
export async function ask<S extends z.ZodType>(
  github: Github,
  path: string,
  { method = 'GET', token, body, answer }: Question<S>,
): Promise<z.output<S>> {
  const bearer = token ?? (await appToken(github.app, github.now()))
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
    return read(answer, await readText(response, ANSWER_BYTES_MAX), what)
  } catch (error) {
    throw toFailure(error, what)
  } finally {
    clear()
  }
}

export const headersOf = (bearer: string): Record<string, string> => ({
  accept: 'application/vnd.github+json',
  authorization: `Bearer ${bearer}`,
  // GitHub refuses who does not say who he is.
  'user-agent': 'Pilothouse/1.0',
  'x-github-api-version': '2022-11-28',
})

function read<S extends z.ZodType>(answer: S, text: string | undefined, what: string): z.output<S> {
  if (text === undefined)
    throw new GithubRefused(`GitHub answers ${what} with more than ${ANSWER_BYTES_MAX} bytes`, 200)
  const parsed = answer.safeParse(json(text))
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new GithubUnavailable(
    `GitHub answers ${what} with what is not expected: ${issue?.path.join('.')} ${issue?.message}`,
  )
}

function json(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** What is not ours is what `fetch` rejects with, or a stream that breaks off. */
export const toFailure = (error: unknown, what: string): Error =>
  error instanceof GithubRefused || error instanceof GithubUnavailable
    ? error
    : new GithubUnavailable(`GitHub does not answer ${what}`, { cause: error })

/** Of an answer that is no success, whose body is read or dropped. */
export async function failureOf({ now }: Pick<Github, 'now'>, response: Response, what: string): Promise<Error> {
  const { status, headers } = response
  const said = json((await readText(response, 64 * 1024)) ?? '') as { message?: unknown } | undefined
  const words = typeof said?.message === 'string' ? `: ${said.message.slice(0, 200)}` : ''
  const message = `GitHub answers ${what} with status ${status}${words}`
  const isLimit =
    status === 429 || (status === 403 && (headers.has('retry-after') || headers.get('x-ratelimit-remaining') === '0'))
  if (status < 500 && !isLimit) return new GithubRefused(message, status)
  const retryAfterSeconds = waitOf(headers, now())
  return new GithubUnavailable(message, { ...(retryAfterSeconds !== undefined && { retryAfterSeconds }) })
}

function waitOf(headers: Headers, now: Date): number | undefined {
  const after = Number(headers.get('retry-after') ?? Number.NaN)
  if (Number.isFinite(after)) return after
  const reset = Number(headers.get('x-ratelimit-remaining') === '0' ? headers.get('x-ratelimit-reset') : Number.NaN)
  return Number.isFinite(reset) ? Math.max(0, reset - now.getTime() / 1000) : undefined
}
