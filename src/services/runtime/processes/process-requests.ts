import type { Bindings } from '../../../platform/bindings.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'
import { type CallContext, type Place, type ProcessCommand, slotBinding } from './process-protocol.ts'

/** What the API and the processes that run programs tell each other with a request. */
export const withCallContext = (
  { PROGRAMS_KEY: key = '' }: Bindings,
  context: Omit<CallContext, 'key'>,
): { cf: CfProperties } => ({
  cf: { key, ...context } as unknown as CfProperties,
})

/** Undefined for a request of anybody without the key. */
export function readCallContext(request: Request, { PROGRAMS_KEY: key }: Bindings): CallContext | undefined {
  if (!key) return undefined
  try {
    const context = request.cf as Partial<CallContext> | undefined
    return typeof context?.key === 'string' && isSameSecret(context.key, key) ? (context as CallContext) : undefined
  } catch {
    // It is no JSON.
    return undefined
  }
}

/** The way to a process. */
export function processFetcher(bindings: Bindings, { slot }: Place): Fetcher {
  const fetcher = bindings[slotBinding(slot)]
  if (!fetcher) throw new Error(`no service binding leads to slot ${slot}`)
  return fetcher
}

/** Asks a process that runs programs. */
export async function sendCommand<T>(
  bindings: Bindings,
  place: Place,
  command: ProcessCommand,
  about: unknown,
): Promise<T> {
  const body = JSON.stringify(about)
  const response = await processFetcher(bindings, place).fetch('http://programs/', {
    ...{ method: 'POST', body },
    ...withCallContext(bindings, { process: place.id, command }),
  })
  if (!response.ok) throw new Error(`the process that runs programs answered ${response.status}`)
  return ((await response.json()) as { result: T }).result
}

/** Asks the supervisor; undefined where it declines. */
export async function askSupervisor<T>({ PROGRAMS, PROGRAMS_KEY: key = '' }: Bindings, path: string, about: unknown) {
  const headers = { authorization: `Bearer ${key}` }
  const response = await PROGRAMS?.fetch(`http://programs${path}`, {
    ...{ method: 'POST', headers, body: JSON.stringify(about) },
  })
  if (!response?.ok) throw new Error(`the supervisor of programs answered ${response?.status}`)
  return ((await response.json()) as { result?: T }).result
}
