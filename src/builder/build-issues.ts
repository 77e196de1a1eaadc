import type { Message } from 'esbuild-wasm'
import type { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'
import { withoutFormatSuffix } from './module-format.ts'
import type { Issue } from './protocol.ts'

/** All issues that the developer has to fix. */
export class Issues extends Error {
  override name = 'Issues'
  readonly issues: readonly Issue[]

  constructor(issues: readonly Issue[]) {
    super(issues.map(({ message }) => message).join('\n'))
    this.issues = issues.slice(0, LIMITS.issues)
  }
}

export const issueOf = ({ message, place }: Problem): Issue => ({ message, ...place })

/** Issues that the bundler reports; empty if the bundler itself failed. */
export function issuesOf(error: unknown): Issue[] {
  const messages = error instanceof Error && 'errors' in error ? (error.errors as Message[]) : []
  return messages.map(({ text, location, detail }) => {
    const known = (detail ?? {}) as Problem['place']
    return { message: withoutFormatSuffix(text), ...(known.file === undefined && location ? placeOf(location) : known) }
  })
}

type Location = NonNullable<Message['location']>

const placeOf = (location: Location): Problem['place'] => ({
  file: withoutFormatSuffix(location.file).replace(/^[a-z]+:/, ''),
  line: location.line,
  column: columnOf(location),
})

/** Column in characters; the bundler counts bytes. */
const columnOf = ({ lineText, column }: Location): number =>
  Buffer.from(lineText).subarray(0, column).toString().length + 1
