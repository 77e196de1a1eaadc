const withoutProgram = new WeakSet<Response>()

/** For an answer that was given before any program ran. */
export function markNotRun(response: Response): Response {
  withoutProgram.add(response)
  return response
}

export const isNotRun = (response: Response): boolean => withoutProgram.has(response)
