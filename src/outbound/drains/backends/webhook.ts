import * as z from 'zod'
import { backend } from '../backend.ts'
import { Headers, Url } from '../fields.ts'

/** The fetch of Workers cannot require HTTP/2. */
const HTTP_ERROR = 'must be http1: this installation cannot require HTTP/2'

const Config = z.strictObject({
  url: Url,
  http: z.literal('http1', { error: HTTP_ERROR }).default('http1'),
  gzip: z.boolean().default(false),
  headers: Headers.default({}),
})

/** Sends a JSON array of rows of the table `logs`, each with its project. */
export const webhook = backend<typeof Config>({
  config: Config,
  secrets: ['headers'],
  target: ({ url }) => ({ field: 'url', url }),
  send: ({ url, gzip, headers }, { rows, projectRef }, transport) =>
    transport.post({
      url,
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(rows.map((row) => ({ ...row, project: projectRef }))),
      gzip,
    }),
})
