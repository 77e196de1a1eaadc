/** Prints an uncaught error of the program. */
export function printError(error: unknown): void {
  try {
    console.error('Uncaught', error)
  } catch {
    // The thrown value cannot be formatted.
  }
}
