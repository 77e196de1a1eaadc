import { ApiError } from './error.ts'

/** A value of the user cannot be used, for example a URL that does not respond. The message continues after the field name. */
export class UnusableValue extends Error {
  override name = 'UnusableValue'
}

/** Runs `work` and turns an `UnusableValue` error into a 400 that names the field. */
export async function attributeToField<T>(field: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof UnusableValue)) throw error
    throw new ApiError('bad_request.validation_failed', {
      issues: [{ field: `body.${field}`, code: 'unusable', message: error.message }],
      cause: error,
    })
  }
}
