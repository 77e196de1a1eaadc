import { ApiError } from './error.ts'

/** What was given leads to nothing that can be used; the message goes on after the name of what was given. */
export class Unusable extends Error {
  override name = 'Unusable'
}

/** A 400 that names the field for what turns out to be unusable. */
export async function forField<T>(field: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof Unusable)) throw error
    throw new ApiError('bad_request.validation_failed', {
      issues: [{ field: `body.${field}`, code: 'unusable', message: error.message }],
      cause: error,
    })
  }
}
