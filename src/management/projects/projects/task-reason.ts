import { EngineUnavailable, SqlError, SqlResultTooLarge, SqlTimeout } from '../../../engine/engine-errors.ts'
import { GithubRefused, GithubUnavailable } from '../../../platform/github/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { BuildUnavailable } from '../../../services/runtime/build-client.ts'
import { PERMANENT_ERRORS } from './tasks.ts'

/** Errors whose messages are written for members, or come from their own databases. */
const PUBLIC_ERRORS = [
  ...PERMANENT_ERRORS,
  SqlError,
  SqlTimeout,
  SqlResultTooLarge,
  EngineUnavailable,
  BuildUnavailable,
  GithubRefused,
  GithubUnavailable,
  ApiError,
]

/** Describes why a task failed, for members. Details of other errors are for the operator, who finds them in the log by the task id. */
export const reasonOf = (task: { id: string }, error: unknown): string =>
  error instanceof Error && PUBLIC_ERRORS.some((kind) => error instanceof kind)
    ? errorText(error)
    : `internal error (task ${task.id})`

/** Maximum length of a reason: it is read with its project, and messages of a database may be long. */
const TEXT_LENGTH_MAX = 2_000

export const errorText = (error: Error): string =>
  (error instanceof ApiError && error.detail ? `${error.message}: ${error.detail}` : error.message).slice(
    0,
    TEXT_LENGTH_MAX,
  )
