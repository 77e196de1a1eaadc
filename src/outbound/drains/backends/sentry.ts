import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { type Batch, backend, type LogRow, levelOf, nanosOf } from '../backend.ts'

interface Dsn {
  key: string
  endpoint: string
}

/** Parses `https://{key}@{host}/{path/}{project}`. The secret after a colon is obsolete and ignored. */
function readDsn(dsn: string): Dsn | undefined {
  const url = URL.parse(dsn)
  const [, path, project] = /^(.*\/)(\d+)$/.exec(url?.pathname ?? '') ?? []
  if (!url?.protocol.startsWith('http') || !/^\w+$/.test(url.username) || url.search || url.hash) return undefined
  return project === undefined
    ? undefined
    : { key: url.username, endpoint: `${url.origin}${path}api/${project}/envelope/` }
}

const Config = z.strictObject({
  dsn: Text.max(2_048).refine((dsn) => readDsn(dsn) !== undefined, 'must be https://<key>@<host>/<project id>'),
})

const dsnOf = ({ dsn }: z.output<typeof Config>): Dsn => {
  const read = readDsn(dsn)
  if (!read) throw new Error('the stored DSN is invalid')
  return read
}

/** Implements "Logs" and "Envelopes" of Sentry's developer documentation. */
export const sentry = backend<typeof Config>({
  config: Config,
  secrets: ['dsn'],
  target: (config) => ({ field: 'dsn', url: dsnOf(config).endpoint }),
  send: async (config, batch, transport) => {
    const { key, endpoint } = dsnOf(config)
    await transport.post({
      url: endpoint,
      headers: {
        'x-sentry-auth': `Sentry sentry_version=7, sentry_client=pilothouse/1.0, sentry_key=${key}`,
        'content-type': 'application/x-sentry-envelope',
      },
      body: envelopeOf(batch),
      gzip: true,
    })
  },
})

/** Parses the decimal text, because a division would lose nanoseconds. */
const secondsOf = (row: LogRow): number => Number(nanosOf(row).replace(/(\d{9})$/, '.$1'))

/** Sentry accepts up to 1,000 logs in an envelope: a batch is never larger, so it is sent in one request and never in part. */
function envelopeOf({ projectRef, rows }: Batch): string {
  const item = { type: 'log', item_count: rows.length, content_type: 'application/vnd.sentry.items.log+json' }
  const items = rows.map((row) => ({
    timestamp: secondsOf(row),
    trace_id: (row.log_attributes.execution_id ?? row.id).replaceAll('-', ''),
    level: levelOf(row),
    body: row.event_message,
    attributes: Object.fromEntries(
      Object.entries({ ...row.log_attributes, id: row.id, source: row.source, project: projectRef }).map(
        ([name, value]) => [name, { value, type: 'string' }],
      ),
    ),
  }))
  return [{}, item, { items }].map((line) => `${JSON.stringify(line)}\n`).join('')
}
