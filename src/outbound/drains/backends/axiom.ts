import * as z from 'zod'
import { backend } from '../backend.ts'
import { Credential } from '../fields.ts'

const Config = z.strictObject({
  domain: z
    .string()
    .max(253)
    .regex(/^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$/, 'must be a host name')
    .default('api.axiom.co'),
  api_token: Credential,
  dataset_name: z.string().regex(/^[\w.-]{1,128}$/, 'must be a dataset name of letters, digits, _, . and -'),
})

const ingestOf = ({ domain, dataset_name }: z.output<typeof Config>) =>
  `https://${domain}/v1/datasets/${dataset_name}/ingest`

export const axiom = backend<typeof Config>({
  config: Config,
  secrets: ['api_token'],
  target: (config) => ({ field: 'domain', url: ingestOf(config) }),
  send: (config, { rows, projectRef }, transport) =>
    transport.post({
      url: ingestOf(config),
      headers: { authorization: `Bearer ${config.api_token}`, 'content-type': 'application/json' },
      body: JSON.stringify(rows.map(({ timestamp, ...row }) => ({ _time: timestamp, project: projectRef, ...row }))),
      gzip: true,
    }),
})
