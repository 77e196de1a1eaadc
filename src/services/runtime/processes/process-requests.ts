import type { Bindings } from '../../../platform/bindings.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'
import { type CallContext, type Place, type ProcessCommand, slotBinding } from './process-protocol.ts'

/** Request options that carry the context of a call between the API and the processes that run programs. */
export const withCallContext = (
  { PROGRAMS_KEY: key = '' }: Bindings,
  context: Omit<CallContext, 'key'>,
): { cf: CfProperties } => ({
  cf: { key, ...context } as unknown as CfProperties,
})

/** Returns undefined for a request without the key. */
export function readCallContext(request: Request, { PROGRAMS_KEY: key }: Bindings): CallContext | undefined {
  if (!key) return undefined
  try {
    const context = request.cf as Partial<CallContext> | undefined
    return typeof context?.key === 'string' && isSameSecret(context.key, key) ? (context as CallContext) : undefined
  } catch {
    // The header is not valid JSON.
    return undefined
  }
}

/** Service binding of a process. */
export function processFetcher(bindings: Bindings, { slot }: Place): Fetcher {
  const fetcher = bindings[slotBinding(slot)]
  if (!fetcher) throw new Error(`slot ${slot} has no service binding`)
  return fetcher
}

/** Sends a command to a process that runs programs, and returns its result. */
export async function sendCommand<T>(
  bindings: Bindings,
  place: Place,
  command: ProcessCommand,
  payload: unknown,
): Promise<T> {
  const body = JSON.stringify(payload)
  const response = await processFetcher(bindings, place).fetch('http://programs/', {
    ...{ method: 'POST', body },
    ...withCallContext(bindings, { process: place.id, command }),
  })
  if (!response.ok) throw new Error(`the process that runs programs answered ${response.status}`)
  return ((await response.json()) as { result: T }).result
}

/** Sends a request to the supervisor. Returns undefined if it declines. */
export async function askSupervisor<T>({ PROGRAMS, PROGRAMS_KEY: key = '' }: Bindings, path: string, payload: unknown) {
  const headers = { authorization: `Bearer ${key}` }
  const response = await PROGRAMS?.fetch(`http://programs${path}`, {
    ...{ method: 'POST', headers, body: JSON.stringify(payload) },
  })
  if (!response?.ok) throw new Error(`the supervisor of programs answered ${response?.status}`)
  return ((await response.json()) as { result?: T }).result
}
