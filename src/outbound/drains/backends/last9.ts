import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { backend, basicAuth } from '../backend.ts'
import { oneOf } from '../fields.ts'
import { logsUrlOf, toProtobuf } from './otlp.ts'

const ENDPOINTS = { 'US-WEST-1': 'https://otlp.last9.io', 'AP-SOUTH-1': 'https://otlp-aps1.last9.io' }
type Region = keyof typeof ENDPOINTS

const Config = z.strictObject({
  region: oneOf(Object.keys(ENDPOINTS) as [Region, ...Region[]]),
  username: Text.min(1)
    .max(256)
    .regex(/^[^:]*$/, 'must not contain a colon'),
  password: Text.min(1).max(4_096),
})

/** OTLP at the endpoints of Last9. */
export const last9 = backend<typeof Config>({
  config: Config,
  secrets: ['password'],
  target: ({ region }) => ({ field: 'region', url: logsUrlOf(ENDPOINTS[region]) }),
  send: ({ region, username, password }, batch, transport) =>
    transport.post({
      url: logsUrlOf(ENDPOINTS[region]),
      headers: { authorization: basicAuth(username, password), 'content-type': 'application/x-protobuf' },
      body: toProtobuf(batch),
      gzip: true,
    }),
})
