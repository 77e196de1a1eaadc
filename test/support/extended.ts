import { it, type TestAPI } from 'vitest'

/** `npm run test:faults` sets it, and runs the files that ask for it too. */
export const isExtended = process.env.EXTENDED === 'on'

/**
 * A test that takes too long for every run of the suite: it runs in `npm run test:faults`, and is skipped elsewhere.
 */
export const extended: TestAPI | TestAPI['skip'] = isExtended ? it : it.skip
