/** Limit for a condition that a test waits for, in milliseconds. A busy machine may need minutes for what takes a second otherwise. */
export const WAIT_MS = 240_000
