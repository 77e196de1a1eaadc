import * as z from 'zod'
import { EngineUnavailable, SqlError, SqlResultTooLarge, SqlTimeout } from '../engine-errors.ts'

const text = z.string().optional()

/** Body of a host's reply about a failed script. */
const Failure = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('unavailable'), message: z.string(), code: text }),
  z.object({ kind: z.literal('timeout'), timeout_ms: z.number() }),
  z.object({ kind: z.literal('too_large'), bytes_max: z.number() }),
  z.object({
    kind: z.literal('sql'),
    code: z.string(),
    message: z.string(),
    position: z.number().optional(),
    ...{ severity: text, hint: text, detail: text, where: text },
    ...{ schema: text, table: text, column: text, constraint: text },
  }),
])

/** The reply for a failed script; undefined for other errors. */
export function scriptFailure(error: unknown): z.input<typeof Failure> | undefined {
  if (error instanceof SqlError) return { kind: 'sql', ...error, message: error.message }
  if (error instanceof SqlTimeout) return { kind: 'timeout', timeout_ms: error.timeoutMs }
  if (error instanceof SqlResultTooLarge) return { kind: 'too_large', bytes_max: error.sizeBytesMax }
  if (error instanceof EngineUnavailable) return { kind: 'unavailable', message: error.message, code: error.code }
  return undefined
}

export function readScriptFailure(reply: unknown): Error {
  const { success, data } = Failure.safeParse(reply)
  if (!success) return new EngineUnavailable('the database host did not run the script')
  switch (data.kind) {
    case 'sql':
      return new SqlError(data)
    case 'timeout':
      return new SqlTimeout(data.timeout_ms)
    case 'too_large':
      return new SqlResultTooLarge(data.bytes_max)
    case 'unavailable':
      return new EngineUnavailable(data.message, data.code === undefined ? {} : { code: data.code })
  }
}
