import type * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import type { BackendType } from '../../../model/tables/index.ts'
import type { Backend } from '../../../outbound/drains/backend.ts'
import { BACKENDS } from '../../../outbound/drains/backends/index.ts'
import { checkTarget } from '../../../outbound/drains/target.ts'
import { ApiError, type Issue } from '../../../platform/http/error.ts'
import { refusalOf } from '../../../platform/net/destination.ts'
import { destinationRules } from '../../../platform/net/egress.ts'

type Fields = Record<string, unknown>

const FIELD = 'body.data.attributes'

/** Validates a config and its destination, and separates its secrets. Errors name the fields. */
export async function checkConfig(
  ctx: SystemCtx,
  type: BackendType,
  input: Fields,
): Promise<{ config: Fields; secrets: Fields }> {
  const backend = backendOf(type)
  const parsed = backend.config.safeParse(input)
  if (!parsed.success) throw invalid(parsed.error.issues.flatMap((issue) => issuesOf(type, issue)))
  await requireTarget(ctx, backend, parsed.data)
  const isSecret = ([name]: [string, unknown]) => backend.secrets.includes(name)
  const fields = Object.entries(parsed.data)
  return {
    config: Object.fromEntries(fields.filter((field) => !isSecret(field))),
    secrets: Object.fromEntries(fields.filter(isSecret)),
  }
}

export function backendOf(type: BackendType): Backend {
  const backend = BACKENDS[type]
  if (backend) return backend
  throw invalid([
    {
      field: `${FIELD}.backend_type`,
      code: 'unsupported',
      message: `${type} is not supported: must be one of ${Object.keys(BACKENDS).join(', ')}`,
    },
  ])
}

function issuesOf(type: BackendType, issue: z.core.$ZodIssue): Issue[] {
  const field = [FIELD, 'config', ...issue.path].join('.')
  if (issue.code !== 'unrecognized_keys') return [{ field, code: issue.code, message: issue.message }]
  return issue.keys.map((key) => ({ field: `${field}.${key}`, code: issue.code, message: `${type} has no such field` }))
}

async function requireTarget(ctx: SystemCtx, backend: Backend, config: object): Promise<void> {
  const target = backend.target(config)
  const verdict = await checkTarget(target, destinationRules(ctx))
  const refusal = refusalOf(verdict)
  if (refusal === undefined) return
  const field = verdict.kind === 'refused' && verdict.isPort ? 'port' : target.field
  throw invalid([{ field: `${FIELD}.config.${field}`, code: 'invalid_destination', message: refusal }])
}

const invalid = (issues: readonly Issue[]) => new ApiError('bad_request.validation_failed', { issues })
