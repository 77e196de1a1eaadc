import * as z from 'zod'
import { BACKEND_TYPES } from '../../../model/tables/index.ts'
import { Name, Text } from '../../../platform/http/common-values.ts'

const BackendType = z.enum(BACKEND_TYPES).meta({ id: 'LogDrainBackendType' })
const Port = z.int().min(0).max(65_535)

/** Config fields that replies contain. src/outbound/drains/backends defines which fields a backend has. */
const visible = {
  url: z.string(),
  http: z.enum(['http1', 'http2']).meta({ description: 'http2 is rejected: this installation cannot require HTTP/2' }),
  gzip: z.boolean(),
  username: z.string().nullable(),
  region: z.string(),
  domain: z.string(),
  dataset_name: z.string(),
  host: z.string(),
  port: Port,
  tls: z.boolean(),
  structured_data: z.string(),
  s3_bucket: z.string(),
  storage_region: z.string(),
  batch_timeout: z.int().meta({ description: 'In milliseconds' }),
  endpoint: z.string(),
  protocol: z.string(),
}

/** Config fields that replies never contain. */
const secrets = {
  headers: z.record(z.string(), z.string()).nullable(),
  api_key: z.string(),
  password: z.string().nullable(),
  dsn: z.string(),
  api_token: z.string(),
  access_key_id: z.string(),
  secret_access_key: z.string(),
}

const unsupported = { cipher_key: z.string(), ca_cert: z.string(), client_cert: z.string(), client_key: z.string() }

const Config = z
  .looseObject({ ...visible, ...secrets, ...unsupported })
  .partial()
  .meta({
    id: 'LogDrainConfig',
    description:
      'webhook: url, http, gzip, headers; datadog: api_key, region; loki: url, username, password, headers; sentry: dsn; axiom: domain, api_token, dataset_name; otlp: endpoint, protocol, gzip, headers; last9: region, username, password; s3: s3_bucket, storage_region, access_key_id, secret_access_key, batch_timeout; syslog: host, port, tls, structured_data',
  })

const Description = Text.max(1_024)

const bodyOf = <T extends z.ZodType>(attributes: T) =>
  z.object({ data: z.object({ type: z.literal('log_drain'), attributes }) })

export const CreateLogDrain = bodyOf(
  z.object({ name: Name, description: Description.optional(), config: Config, backend_type: BackendType }),
).meta({ id: 'CreateLogDrain' })

export const UpdateLogDrain = bodyOf(
  z.object({
    name: Name.optional(),
    description: Description.optional(),
    config: Config.optional(),
    backend_type: BackendType,
  }),
).meta({ id: 'UpdateLogDrain' })

const LogDrain = z
  .object({
    type: z.literal('log_drain'),
    id: z.uuid(),
    attributes: z.object({
      name: z.string(),
      description: z.string().optional(),
      config: z.object(visible).partial().meta({ description: 'The config without its secrets' }),
      backend_type: BackendType,
    }),
  })
  .meta({ id: 'LogDrain' })

export const LogDrainReply = z.object({ data: LogDrain }).meta({ id: 'LogDrainReply' })
export const LogDrainList = z.object({ data: z.array(LogDrain) }).meta({ id: 'LogDrainList' })
