import { it, type TestAPI } from 'vitest'

/** `npm run test:faults` sets it, and runs the files that ask for it too. */
export const isExtended = process.env.EXTENDED === 'on'

/** A test that goes deeper than each run of the suite has time for: in `npm run test:faults` alone. */
export const extended = (isExtended ? it : () => {}) as TestAPI
