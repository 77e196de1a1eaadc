import * as z from 'zod'
import { backend } from '../backend.ts'
import { Headers, Url } from '../fields.ts'

/** A Worker's fetch cannot be told to use HTTP/2. */
const HTTP_ERROR = 'must be http1: HTTP/2 cannot be required here'

const Config = z.strictObject({
  url: Url,
  http: z.literal('http1', { error: HTTP_ERROR }).default('http1'),
  gzip: z.boolean().default(false),
  headers: Headers.default({}),
})

/** A JSON array of the rows, as the table `logs` shows them, each with its project. */
export const webhook = backend<typeof Config>({
  config: Config,
  secrets: ['headers'],
  target: ({ url }) => ({ field: 'url', url }),
  send: ({ url, gzip, headers }, { rows, projectRef }, way) =>
    way.post({
      url,
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(rows.map((row) => ({ ...row, project: projectRef }))),
      gzip,
    }),
})
