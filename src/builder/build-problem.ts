import type { Issue } from './protocol.ts'

/** What the developer can mend. */
export class Problem extends Error {
  override name = 'Problem'
  readonly place: Omit<Issue, 'message'>

  constructor(message: string, place: Omit<Issue, 'message'> = {}) {
    super(message)
    this.place = place
  }
}

/** What nobody who deploys can mend: it may go well another time. */
export class Unavailable extends Error {
  override name = 'Unavailable'
}
