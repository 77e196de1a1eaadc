/** What callers are told where no answer of the worker's own comes. */
const REFUSALS = {
  UNAUTHORIZED_NO_AUTH_HEADER: [401, 'Missing authorization header'],
  UNAUTHORIZED_INVALID_JWT: [401, 'Invalid JWT'],
  FORBIDDEN: [403, 'A private worker answers to the service_role key alone'],
  NOT_FOUND: [404, 'Requested worker was not found'],
  TOO_MANY_REQUESTS: [429, 'Too many requests: try again later'],
  WORKER_ERROR: [500, 'Worker exited due to an error (please check logs)'],
  BOOT_ERROR: [503, 'Worker failed to start (please check logs)'],
  NO_INSTANCE: [503, 'The worker has no instances'],
  SERVICE_UNAVAILABLE: [503, 'Worker could not be loaded: try again'],
  PROGRAMS_ENDED: [503, "The process that runs this project's programs was ended: try again (please check logs)"],
  IDLE_TIMEOUT: [504, 'Request idle timeout limit (150s) reached'],
  LOOP_DETECTED: [508, 'Programs call each other without end: this call has led to too many others'],
  PROJECT_PAUSED: [540, 'The project is paused'],
  WORKER_RESOURCE_LIMIT: [546, 'Worker failed due to not having enough compute resources (please check logs)'],
} as const satisfies Record<string, readonly [status: number, message: string]>
export type RefusalCode = keyof typeof REFUSALS

const RETRIED: readonly RefusalCode[] = ['SERVICE_UNAVAILABLE', 'PROGRAMS_ENDED', 'TOO_MANY_REQUESTS']

export function refuse(code: RefusalCode): Response {
  const [status, message] = REFUSALS[code]
  // A page must be able to read why its call failed.
  const headers = {
    'sb-error-code': code,
    'access-control-allow-origin': '*',
    'access-control-expose-headers': 'sb-error-code',
    ...(RETRIED.includes(code) && { 'retry-after': '1' }),
  }
  return Response.json({ code, message }, { status, headers })
}
