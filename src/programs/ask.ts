import type { Bindings } from '../env.ts'
import { isSameSecret } from '../secrets/equal.ts'
import type { Question, Told } from './protocol.ts'

/** What the API and the process that runs programs tell each other with a request. */
export const telling = ({ PROGRAMS_KEY: key = '' }: Bindings, told: Omit<Told, 'key'>): { cf: CfProperties } => ({
  cf: { key, ...told } as unknown as CfProperties,
})

/** Undefined where nobody told it who has the key. */
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

/** Asks the process that runs programs, which there must be. */
export async function askPrograms<T>(bindings: Bindings, question: Question, about: unknown = {}): Promise<T> {
  const body = JSON.stringify(about)
  const response = await bindings.PROGRAMS?.fetch('http://programs/', {
    ...{ method: 'POST', body },
    ...telling(bindings, { question }),
  })
  if (!response?.ok) throw new Error(`the process that runs programs answered ${response?.status}`)
  return ((await response.json()) as { result: T }).result
}
