import { PAUSED } from '../gateway/paused.ts'
import type { ProgramName } from './processes/process-protocol.ts'

type Kind = ProgramName['kind']

/**
 * Responses to calls that the program itself does not answer. Clients know the codes and most of the messages. `{kind}`
 * and `{Kind}` stand for the kind of the program.
 */
const REFUSALS = {
  UNAUTHORIZED_NO_AUTH_HEADER: [401, 'Missing authorization header'],
  UNAUTHORIZED_INVALID_JWT: [401, 'Invalid JWT'],
  UNAUTHORIZED_INVALID_JWT_FORMAT: [401, 'Invalid JWT'],
  UNAUTHORIZED_LEGACY_JWT: [401, 'Invalid JWT'],
  UNAUTHORIZED_ASYMMETRIC_JWT: [401, 'Invalid JWT'],
  UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM: [401, 'Unsupported JWT algorithm'],
  FORBIDDEN: [403, 'This {kind} is private: call it with the service_role key'],
  NOT_FOUND: [404, 'Requested {kind} was not found'],
  TOO_MANY_REQUESTS: [429, 'Too many requests: try again later'],
  WORKER_ERROR: [500, '{Kind} exited due to an error (please check logs)'],
  BOOT_ERROR: [503, '{Kind} failed to start (please check logs)'],
  NO_INSTANCE: [503, 'The {kind} has no instances'],
  SERVICE_UNAVAILABLE: [503, '{Kind} could not be loaded: try again'],
  PROGRAMS_ENDED: [503, "The process that runs this project's programs was ended: try again (please check logs)"],
  PROJECT_NOT_READY: [503, 'The project is not running yet: try again later'],
  IDLE_TIMEOUT: [504, 'Request idle timeout limit (150s) reached'],
  LOOP_DETECTED: [508, 'Too many nested calls: check whether programs call each other in a loop'],
  PROJECT_PAUSED: [PAUSED.status, PAUSED.message],
  WORKER_RESOURCE_LIMIT: [546, '{Kind} failed due to not having enough compute resources (please check logs)'],
} as const satisfies Record<string, readonly [status: number, message: string]>
export type RefusalCode = keyof typeof REFUSALS

const NAMES = { function: 'Function', worker: 'Worker' } as const satisfies Record<Kind, string>

/** Codes for which the header differs from the body, as on the hosted service. */
const HEADER_CODES: Record<Kind, Partial<Record<RefusalCode, string>>> = {
  function: { WORKER_ERROR: 'EDGE_FUNCTION_ERROR' },
  worker: {},
}

const RETRYABLE: readonly RefusalCode[] = [
  'SERVICE_UNAVAILABLE',
  'PROGRAMS_ENDED',
  'PROJECT_NOT_READY',
  'TOO_MANY_REQUESTS',
]

export function refuse(kind: Kind, code: RefusalCode, more: Record<string, string> = {}): Response {
  const [status, text] = REFUSALS[code]
  const message = text.replace('{kind}', kind).replace('{Kind}', NAMES[kind])
  const headers = {
    'sb-error-code': HEADER_CODES[kind][code] ?? code,
    // Pages of any origin may read why their call failed.
    'access-control-allow-origin': '*',
    'access-control-expose-headers': 'sb-error-code',
    ...(RETRYABLE.includes(code) && { 'retry-after': '1' }),
    ...more,
  }
  return Response.json({ code, message }, { status, headers })
}
