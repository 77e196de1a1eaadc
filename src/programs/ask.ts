import type { Bindings } from '../env.ts'
import { FROM_API_HEADER, type FromApi, type Question } from './protocol.ts'

/** What the process that runs programs is told with a request. */
export const toldBy = ({ PROGRAMS_KEY: key = '' }: Bindings, told: Omit<FromApi, 'key'>): string =>
  JSON.stringify({ key, ...told } satisfies FromApi)

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
