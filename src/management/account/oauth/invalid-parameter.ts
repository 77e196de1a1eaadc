import { ApiError } from '../../../platform/http/error.ts'

/** Creates the error for a parameter that the schema accepts but that is invalid. `field` is a path such as `body.code`. */
export const invalid = (field: string, message: string) =>
  new ApiError('bad_request.validation_failed', { issues: [{ field, code: 'invalid', message }] })
