import * as z from 'zod'
import { HttpUrl } from '../../platform/http/common-values.ts'
import { URL_LENGTH_MAX } from '../../platform/net/destination.ts'
import { headerProblem } from '../webhooks/delivery-headers.ts'

/** Config fields shared by several backends. */

export const Url = HttpUrl.max(URL_LENGTH_MAX)

/** Header names are lower-cased, so that one can override another. Null means no headers. */
export const Headers = z
  .record(z.string(), z.string())
  .nullable()
  .transform((headers) => headers ?? {})
  .superRefine((headers, check) => {
    const found = headerProblem(headers)
    if (found) check.addIssue(`${found.name}: ${found.problem}`)
  })
  .transform((headers) =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
  )

/** A credential that is sent in a header. */
export const Credential = z
  .string()
  .min(1)
  .max(4_096)
  .regex(/^[\x21-\x7e]+$/, 'must consist of printable ASCII characters without spaces')

export const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, { error: `must be one of ${values.join(', ')}` })
