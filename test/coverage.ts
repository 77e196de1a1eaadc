import { routes } from '../src/api.ts'

interface Line {
  event?: string
  route?: string
  error?: string
}

const parse = (line: string): Line => {
  try {
    return JSON.parse(line) as Line
  } catch {
    return {}
  }
}

/** Declared errors that no request of the run met, and faults that the Worker logged. */
export function uncovered(logs: readonly string[]): string[] {
  const lines = logs.map(parse)
  const seen = new Set(lines.map(({ route, error }) => `${route} ${error}`))
  const missing = routes.flatMap(({ id, errors = [] }) =>
    errors.map((code) => `${id} ${code}`).filter((pair) => !seen.has(pair)),
  )
  const undeclared = lines
    .filter(({ event }) => event === 'undeclared_error')
    .map((line) => `undeclared: ${JSON.stringify(line)}`)
  const faults = lines
    .filter(({ error }) => error === 'internal_server_error')
    .map((line) => `fault: ${JSON.stringify(line)}`)
  return [...missing, ...undeclared, ...faults]
}
