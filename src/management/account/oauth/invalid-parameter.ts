import { ApiError } from '../../../platform/http/error.ts'

/** A parameter that the schema lets pass; `field` such as `body.code`. */
export const invalid = (field: string, message: string) =>
  new ApiError('bad_request.validation_failed', { issues: [{ field, code: 'invalid', message }] })
