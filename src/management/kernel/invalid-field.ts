import { ApiError } from '../../platform/http/error.ts'

/** Creates the error for a field that the schema accepts but that is invalid. `field` is a path such as `body.code`. */
export const invalidField = (field: string, message: string, code = 'invalid'): ApiError =>
  new ApiError('bad_request.validation_failed', { issues: [{ field, code, message }] })
