const notRun = new WeakSet<Response>()

/** Marks a response for which no program ran. */
export function markNotRun(response: Response): Response {
  notRun.add(response)
  return response
}

export const isNotRun = (response: Response): boolean => notRun.has(response)
