/** Time limit for a condition that a test waits for, in milliseconds: a busy machine may need minutes for the work of a second. */
export const WAIT_MS = 240_000
