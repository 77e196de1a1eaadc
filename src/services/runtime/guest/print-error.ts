import { recordFailure } from './console.ts'

/** Prints an uncaught error of the program. */
export function printError(error: unknown): void {
  try {
    recordFailure('Uncaught', error)
  } catch {
    // The thrown value cannot be formatted.
  }
}
