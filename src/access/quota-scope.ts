import type { Caller } from '../actor.ts'
import { REF, UUID } from '../platform/identifiers.ts'
import { INVALID_TOKEN_SCOPE } from '../platform/rate-limit/quota.ts'
import { accessTokenIn } from './authenticate.ts'

const SCOPED_PATH = /^\/(?:v\d+)\/(projects|organizations|branches)\/([\w-]+)/

/** Scope of a request's rate limit: its project, its organization, `none`, or INVALID_TOKEN_SCOPE. A caller has a quota for each scope. */
export function rateLimitScope(caller: Caller | undefined, path: string, authorization?: string): string {
  if (!caller) return accessTokenIn(authorization) ? INVALID_TOKEN_SCOPE : 'none'
  const [, kind, name] = SCOPED_PATH.exec(path) ?? []
  if (!kind || !name) return 'none'
  if (kind === 'organizations') return `organization ${name}`
  // A branch is addressed by its project's ref or by its id, which may be in upper case.
  const id = name.toLowerCase()
  return REF.test(name) || UUID.test(id) ? `project ${id}` : 'none'
}
