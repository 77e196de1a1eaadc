import type { Caller } from '../actor.ts'
import { WRONG_TOKENS } from '../platform/rate-limit/quota.ts'
import { accessTokenIn } from './principal.ts'

/** Branches are named by either. */
const REF_OR_ID = /^([a-z]{20}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/
const SCOPED_PATH = /^\/(?:v\d+)\/(projects|organizations|branches)\/([\w-]+)/

/** What the quota is counted for: a project, an organization, or none. Other calls of the caller do not touch it. */
export function limitScope(caller: Caller | undefined, path: string, authorization?: string): string {
  if (!caller) return accessTokenIn(authorization) ? WRONG_TOKENS : 'none'
  const [, kind, name] = SCOPED_PATH.exec(path) ?? []
  if (!kind || !name) return 'none'
  if (kind === 'organizations') return `organization ${name}`
  return REF_OR_ID.test(name) ? `project ${name}` : 'none'
}
