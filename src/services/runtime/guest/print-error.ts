/** Of what the program threw and nobody caught. */
export function printError(error: unknown): void {
  try {
    console.error('Uncaught', error)
  } catch {
    // Whatever it is, it cannot be shown.
  }
}
