import type { PlatformCtx } from '../context.ts'
import { readText } from '../http/read-text.ts'
import { UnusableValue } from '../http/unusable-value.ts'
import { timeout } from '../timeout.ts'
import { checkDestination, refusalOf } from './destination.ts'
import { createEgressFetch, destinationRules } from './egress.ts'

interface Expected {
  accept: string
  sizeBytesMax: number
}

/** Time limit for the response with its body, unless WEBHOOK_TIMEOUT_SECONDS is lower. */
const TIMEOUT_SECONDS_MAX = 10

/** Fetches the text at a URL that a user configured: over https, from a public address, without redirects. */
export async function fetchText(ctx: PlatformCtx, url: string, expected: Expected): Promise<string> {
  const refusal = refusalOf(await checkDestination(url, { ...destinationRules(ctx), httpsOnly: true }))
  if (refusal !== undefined) throw new UnusableValue(refusal)
  const seconds = Math.min(TIMEOUT_SECONDS_MAX, ctx.config.WEBHOOK_TIMEOUT_SECONDS)
  const { signal, clear } = timeout(seconds * 1000)
  try {
    return await read(ctx, url, { ...expected, signal })
  } catch (cause) {
    if (cause instanceof UnusableValue) throw cause
    // The message of the runtime is not shown, as it reveals internals.
    const reason = signal.aborted ? `did not respond completely within ${seconds} s` : 'cannot be reached'
    throw new UnusableValue(reason, { cause })
  } finally {
    clear()
  }
}

async function read(
  ctx: PlatformCtx,
  url: string,
  { accept, sizeBytesMax, signal }: Expected & { signal: AbortSignal },
) {
  const headers = { accept, 'user-agent': 'Pilothouse/1.0' }
  const response = await createEgressFetch(ctx)(url, { headers, redirect: 'manual', signal })
  const { status } = response
  if (status !== 200) {
    await response.body?.cancel()
    throw new UnusableValue(
      `responded with status ${status}${status >= 300 && status < 400 ? '; redirects are not followed' : ''}`,
    )
  }
  const text = await readText(response, sizeBytesMax)
  if (text === undefined) throw new UnusableValue(`responded with more than ${sizeBytesMax} bytes`)
  return text
}
