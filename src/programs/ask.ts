import type { Bindings } from '../env.ts'
import { isSameSecret } from '../secrets/equal.ts'
import type { Cause } from './chains.ts'
import { FROM_API_HEADER, FROM_PROGRAMS_HEADER, type FromApi, type FromPrograms, type Question } from './protocol.ts'

/** What the process that runs programs is told with a request. */
export const toldBy = ({ PROGRAMS_KEY: key = '' }: Bindings, told: Omit<FromApi, 'key'>): string =>
  JSON.stringify({ key, ...told } satisfies FromApi)

/** What it tells in its turn, with what a program calls. */
export const toldByPrograms = ({ PROGRAMS_KEY: key = '' }: Bindings, cause: Cause): string =>
  JSON.stringify({ key, cause } satisfies FromPrograms)

/** Undefined where nobody said it who has the key. */
export const fromApi = (request: Request, bindings: Bindings) => told<FromApi>(request, FROM_API_HEADER, bindings)
export const fromPrograms = (request: Request, bindings: Bindings) =>
  told<FromPrograms>(request, FROM_PROGRAMS_HEADER, bindings)

function told<T extends { key: string }>({ headers }: Request, name: string, bindings: Bindings): T | undefined {
  const { PROGRAMS_KEY: key } = bindings
  const text = headers.get(name)
  if (!text || !key) return undefined
  try {
    const given = JSON.parse(text) as Partial<T> | null
    return typeof given?.key === 'string' && isSameSecret(given.key, key) ? (given as T) : undefined
  } catch {
    return undefined
  }
}

/** Asks the process that runs programs, which there must be. */
export async function askPrograms<T>(bindings: Bindings, question: Question, about: unknown = {}): Promise<T> {
  const headers = { [FROM_API_HEADER]: toldBy(bindings, { question }) }
  const response = await bindings.PROGRAMS?.fetch('http://programs/', {
    method: 'POST',
    headers,
    body: JSON.stringify(about),
  })
  if (!response?.ok) throw new Error(`the process that runs programs answered ${response?.status}`)
  return ((await response.json()) as { result: T }).result
}
