import type { Caller } from '../actor.ts'
import { INVALID_TOKEN_SCOPE } from '../platform/rate-limit/quota.ts'
import { accessTokenIn } from './authenticate.ts'

/** A branch is addressed by its project's ref or by its id. */
const REF_OR_ID = /^([a-z]{20}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/
const SCOPED_PATH = /^\/(?:v\d+)\/(projects|organizations|branches)\/([\w-]+)/

/** The scope of the rate limit: a project, an organization, or none. Each scope of a caller has its own quota. */
export function rateLimitScope(caller: Caller | undefined, path: string, authorization?: string): string {
  if (!caller) return accessTokenIn(authorization) ? INVALID_TOKEN_SCOPE : 'none'
  const [, kind, name] = SCOPED_PATH.exec(path) ?? []
  if (!kind || !name) return 'none'
  if (kind === 'organizations') return `organization ${name}`
  return REF_OR_ID.test(name) ? `project ${name}` : 'none'
}
