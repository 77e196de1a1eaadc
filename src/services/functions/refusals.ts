import { refusalResponse } from '../runtime/refused-calls.ts'

/** Responses to calls that the function itself does not answer. Clients know the codes and most of the messages. */
const REFUSALS = {
  UNAUTHORIZED_NO_AUTH_HEADER: [401, 'Missing authorization header'],
  UNAUTHORIZED_INVALID_JWT_FORMAT: [401, 'Invalid JWT'],
  UNAUTHORIZED_LEGACY_JWT: [401, 'Invalid JWT'],
  UNAUTHORIZED_ASYMMETRIC_JWT: [401, 'Invalid JWT'],
  UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM: [401, 'Unsupported JWT algorithm'],
  NOT_FOUND: [404, 'Requested function was not found'],
  TOO_MANY_REQUESTS: [429, 'Too many requests: try again later'],
  WORKER_ERROR: [500, 'Function exited due to an error (please check logs)'],
  BOOT_ERROR: [503, 'Function failed to start (please check logs)'],
  SERVICE_UNAVAILABLE: [503, 'Function could not be loaded: try again'],
  PROGRAMS_ENDED: [503, "The process that runs this project's programs was ended: try again (please check logs)"],
  PROJECT_NOT_READY: [503, 'The project is not running yet: try again later'],
  IDLE_TIMEOUT: [504, 'Request idle timeout limit (150s) reached'],
  LOOP_DETECTED: [508, 'Too many nested calls: check whether programs call each other in a loop'],
  PROJECT_PAUSED: [540, 'The project is paused'],
  WORKER_RESOURCE_LIMIT: [546, 'Function failed due to not having enough compute resources (please check logs)'],
} as const satisfies Record<string, readonly [status: number, message: string]>
export type RefusalCode = keyof typeof REFUSALS

/** Codes for which the header differs from the body, as on the hosted service. */
const HEADER_CODES: Partial<Record<RefusalCode, string>> = { WORKER_ERROR: 'EDGE_FUNCTION_ERROR' }

export const refuse = (code: RefusalCode): Response => refusalResponse(code, REFUSALS[code], HEADER_CODES[code])
