import * as z from 'zod'
import { type Batch, backend, bySource, type LogRow, nanosOf } from '../backend.ts'
import { Headers, oneOf, Url } from '../fields.ts'
import { concat, fixed64, message, text, varint } from '../protobuf.ts'

const PROTOCOLS = ['http/protobuf', 'http/json'] as const
type Protocol = (typeof PROTOCOLS)[number]

const Config = z.strictObject({
  endpoint: Url,
  protocol: oneOf(PROTOCOLS).default('http/protobuf'),
  gzip: z.boolean().default(true),
  headers: Headers.default({}),
})

/** Appends the default path to an endpoint without a path, as OpenTelemetry exporters do. */
export function logsUrlOf(endpoint: string): string {
  const url = new URL(endpoint)
  if (url.pathname === '/') url.pathname = '/v1/logs'
  return url.href
}

export const otlp = backend<typeof Config>({
  config: Config,
  secrets: ['headers'],
  target: ({ endpoint }) => ({ field: 'endpoint', url: logsUrlOf(endpoint) }),
  send: ({ endpoint, protocol, gzip, headers }, batch, transport) =>
    transport.post({
      url: logsUrlOf(endpoint),
      headers: { ...headers, 'content-type': CONTENT_TYPES[protocol] },
      body: ENCODERS[protocol](batch),
      gzip,
    }),
})

const CONTENT_TYPES: Record<Protocol, string> = {
  'http/protobuf': 'application/x-protobuf',
  'http/json': 'application/json',
}

const SEVERITY_NUMBERS: Record<string, number> = { DEBUG: 5, INFO: 9, WARN: 13, ERROR: 17 }
const severityOf = ({ severity_text }: LogRow): number => SEVERITY_NUMBERS[severity_text] ?? 0

const resourceOf = (source: string, projectRef: string) => ({ 'service.name': source, 'project.ref': projectRef })
const SCOPE = 'pilothouse'
const attributesOf = ({ id, log_attributes }: LogRow) => ({ 'log.record.uid': id, ...log_attributes })

function toJson({ rows, projectRef }: Batch): string {
  const keyValues = (values: Record<string, string>) =>
    Object.entries(values).map(([key, stringValue]) => ({ key, value: { stringValue } }))
  return JSON.stringify({
    resourceLogs: Array.from(bySource(rows), ([source, own]) => ({
      resource: { attributes: keyValues(resourceOf(source, projectRef)) },
      scopeLogs: [
        {
          scope: { name: SCOPE },
          logRecords: own.map((row) => ({
            timeUnixNano: nanosOf(row),
            observedTimeUnixNano: nanosOf(row),
            severityNumber: severityOf(row),
            severityText: row.severity_text,
            body: { stringValue: row.event_message },
            attributes: keyValues(attributesOf(row)),
          })),
        },
      ],
    })),
  })
}

/** Encodes a batch with the field numbers of opentelemetry/proto/{collector/logs,logs,common,resource}/v1. */
export function toProtobuf({ rows, projectRef }: Batch): Uint8Array<ArrayBuffer> {
  const keyValues = (field: number, values: Record<string, string>) =>
    concat(Object.entries(values).map(([key, value]) => message(field, [text(1, key), message(2, [text(1, value)])])))
  const record = (row: LogRow) =>
    message(2, [
      fixed64(1, nanosOf(row)),
      varint(2, severityOf(row)),
      text(3, row.severity_text),
      message(5, [text(1, row.event_message)]),
      keyValues(6, attributesOf(row)),
      fixed64(11, nanosOf(row)),
    ])
  return concat(
    Array.from(bySource(rows), ([source, own]) =>
      message(1, [
        message(1, [keyValues(1, resourceOf(source, projectRef))]),
        message(2, [message(1, [text(1, SCOPE)]), ...own.map(record)]),
      ]),
    ),
  )
}

const ENCODERS: Record<Protocol, (batch: Batch) => string | Uint8Array<ArrayBuffer>> = {
  'http/protobuf': toProtobuf,
  'http/json': toJson,
}
