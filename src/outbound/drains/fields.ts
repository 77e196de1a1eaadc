import * as z from 'zod'
import { HttpUrl } from '../../platform/http/common-values.ts'
import { URL_LENGTH_MAX } from '../../platform/net/destination.ts'
import { headerProblem } from '../webhooks/delivery-headers.ts'

/** Fields that the configs of several backends have. */

export const Url = HttpUrl.max(URL_LENGTH_MAX)

/** In lower case, so that one can take the place of another. */
export const Headers = z
  .record(z.string(), z.string())
  .superRefine((headers, check) => {
    const found = headerProblem(headers)
    if (found) check.addIssue(`${found.name}: ${found.problem}`)
  })
  .transform((headers) =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
  )

/** As it goes into a header. */
export const Credential = z
  .string()
  .min(1)
  .max(4_096)
  .regex(/^[\x21-\x7e]+$/, 'must be of printable ASCII characters without blanks')

export const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, { error: `must be one of ${values.join(', ')}` })
