import { refusalResponse } from '../runtime/refused-calls.ts'

/** Responses to calls that the worker itself does not answer. */
const REFUSALS = {
  UNAUTHORIZED_NO_AUTH_HEADER: [401, 'Missing authorization header'],
  UNAUTHORIZED_INVALID_JWT: [401, 'Invalid JWT'],
  FORBIDDEN: [403, 'This worker is private: call it with the service_role key'],
  NOT_FOUND: [404, 'Requested worker was not found'],
  TOO_MANY_REQUESTS: [429, 'Too many requests: try again later'],
  WORKER_ERROR: [500, 'Worker exited due to an error (please check logs)'],
  BOOT_ERROR: [503, 'Worker failed to start (please check logs)'],
  NO_INSTANCE: [503, 'The worker has no instances'],
  SERVICE_UNAVAILABLE: [503, 'Worker could not be loaded: try again'],
  PROGRAMS_ENDED: [503, "The process that runs this project's programs was ended: try again (please check logs)"],
  IDLE_TIMEOUT: [504, 'Request idle timeout limit (150s) reached'],
  LOOP_DETECTED: [508, 'Too many nested calls: check whether programs call each other in a loop'],
  PROJECT_PAUSED: [540, 'The project is paused'],
  WORKER_RESOURCE_LIMIT: [546, 'Worker failed due to not having enough compute resources (please check logs)'],
} as const satisfies Record<string, readonly [status: number, message: string]>
export type RefusalCode = keyof typeof REFUSALS

export const refuse = (code: RefusalCode): Response => refusalResponse(code, REFUSALS[code])
