import type { Bindings } from '../../../platform/bindings.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'
import { type Place, type Question, slotBinding, type Told } from './process-protocol.ts'

/** What the API and the processes that run programs tell each other with a request. */
export const telling = ({ PROGRAMS_KEY: key = '' }: Bindings, told: Omit<Told, 'key'>): { cf: CfProperties } => ({
  cf: { key, ...told } as unknown as CfProperties,
})

/** Undefined for a request of anybody without the key. */
export function toldWith(request: Request, { PROGRAMS_KEY: key }: Bindings): Told | undefined {
  if (!key) return undefined
  try {
    const told = request.cf as Partial<Told> | undefined
    return typeof told?.key === 'string' && isSameSecret(told.key, key) ? (told as Told) : undefined
  } catch {
    // It is no JSON.
    return undefined
  }
}

/** The way to a process. */
export function slotOf(bindings: Bindings, { slot }: Place): Fetcher {
  const fetcher = bindings[slotBinding(slot)]
  if (!fetcher) throw new Error(`no service binding leads to slot ${slot}`)
  return fetcher
}

/** Asks a process that runs programs. */
export async function askProcess<T>(bindings: Bindings, place: Place, question: Question, about: unknown): Promise<T> {
  const body = JSON.stringify(about)
  const response = await slotOf(bindings, place).fetch('http://programs/', {
    ...{ method: 'POST', body },
    ...telling(bindings, { process: place.id, question }),
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
