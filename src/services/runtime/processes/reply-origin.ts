const withoutProgram = new WeakSet<Response>()

/** For an answer that was given before any program ran. */
export function markWithoutProgram(response: Response): Response {
  withoutProgram.add(response)
  return response
}

export const isWithoutProgram = (response: Response): boolean => withoutProgram.has(response)
