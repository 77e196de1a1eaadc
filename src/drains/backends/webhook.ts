import * as z from 'zod'
import { backend } from '../backend.ts'
import { Headers, Url } from '../fields.ts'

/** The version of HTTP is settled with the server; both spellings are taken. */
const Config = z.strictObject({
  url: Url,
  http: z.enum(['http1', 'http2']).default('http1'),
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
