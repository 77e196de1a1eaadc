import type { Issue } from './protocol.ts'

/** A problem in the source, which the developer can fix. */
export class Problem extends Error {
  override name = 'Problem'
  readonly place: Omit<Issue, 'message'>

  constructor(message: string, place: Omit<Issue, 'message'> = {}) {
    super(message)
    this.place = place
  }
}

/** A temporary problem outside of the source; a later build may succeed. */
export class Unavailable extends Error {
  override name = 'Unavailable'
}
