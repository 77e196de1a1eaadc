import { newTimedId } from '../../platform/db/id.ts'
import { createLogger } from '../../platform/http/log.ts'
import type { Located } from './project-address.ts'

const SECRET_KEY = /^(bearer\s+)?sb_secret_/i

/**
 * Refuses a secret key that a browser sends to a project, whether or not it is valid: a page that has it shows it to everybody. Every
 * browser names itself so, and no client library does.
 */
export function refuseSecretKeyInBrowser(request: Request, { url, project }: Located): Response | undefined {
  const { method, headers } = request
  if (!project || !headers.get('user-agent')?.startsWith('Mozilla/')) return undefined
  if (!['apikey', 'authorization'].some((name) => SECRET_KEY.test(headers.get(name) ?? ''))) return undefined
  const requestId = newTimedId(new Date())
  const fields = { method, path: url.pathname, status: 401, project: project.ref }
  createLogger(requestId).info('request', { ...fields, error: 'secret_key_in_browser' })
  return Response.json(BODY, { status: 401, headers: { ...HEADERS, 'x-request-id': requestId } })
}

/** Code and texts are those of the hosted service. */
const HEADERS = {
  'sb-error-code': 'UNAUTHORIZED_INVALID_API_KEY_TYPE',
  'access-control-allow-origin': '*',
  'access-control-expose-headers': 'sb-error-code, x-request-id',
}
const BODY = {
  message: 'Forbidden use of secret API key in browser',
  hint: 'Secret API keys can only be used in a protected environment and should never be used in a browser. Delete this secret API key immediately!',
}
