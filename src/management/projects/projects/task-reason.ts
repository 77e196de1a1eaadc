import { EngineUnavailable, SqlError, SqlResultTooLarge, SqlTimeout } from '../../../engine/engine.ts'
import { GithubRefused, GithubUnavailable } from '../../../platform/github/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { BuildUnavailable } from '../../../services/runtime/build-client.ts'
import { PermanentError } from './tasks.ts'

/** Whose texts are made for members, or come from their own databases. */
const TELLABLE = [
  PermanentError,
  SqlError,
  SqlTimeout,
  SqlResultTooLarge,
  EngineUnavailable,
  BuildUnavailable,
  GithubRefused,
  GithubUnavailable,
  ApiError,
]

/** Why work failed, for members: of all else, which may name what is nobody's but the operator's, where he finds it. */
export const reasonOf = (task: { id: string }, error: unknown): string =>
  error instanceof Error && TELLABLE.some((kind) => error instanceof kind)
    ? said(error)
    : `internal error (task ${task.id})`

/** Every look at a project reads it, and what a database says may be long. */
const SAID_LENGTH_MAX = 2_000

export const said = (error: Error): string =>
  (error instanceof ApiError && error.detail ? `${error.message}: ${error.detail}` : error.message).slice(
    0,
    SAID_LENGTH_MAX,
  )
