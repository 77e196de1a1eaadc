import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { backend, basicAuth, bySource, type LogRow, levelOf, nanosOf } from '../backend.ts'
import { Headers, Url } from '../fields.ts'

const Config = z
  .strictObject({
    url: Url,
    username: Text.min(1)
      .max(256)
      .regex(/^[^:]*$/, 'must not contain a colon')
      .nullable()
      .default(null),
    password: Text.min(1).max(4_096).nullable().default(null),
    headers: Headers.default({}),
  })
  .superRefine(({ username, password }, check) => {
    if ((username === null) === (password === null)) return
    const path = username === null ? 'username' : 'password'
    check.addIssue({
      code: 'custom',
      path: [path],
      message: 'is required: username and password must be given together',
    })
  })

/** Sends a stream per source; attributes of a row become structured metadata. */
export const loki = backend<typeof Config>({
  config: Config,
  secrets: ['password', 'headers'],
  target: ({ url }) => ({ field: 'url', url }),
  send: ({ url, username, password, headers }, { rows, projectRef }, transport) =>
    transport.post({
      url,
      headers: {
        ...(username !== null && password !== null && { authorization: basicAuth(username, password) }),
        ...headers,
        'content-type': 'application/json',
      },
      body: JSON.stringify({
        streams: Array.from(bySource(rows), ([source, own]) => ({
          stream: { source, service_name: source, project: projectRef },
          values: own.map((row) => [nanosOf(row), row.event_message, metadataOf(row)]),
        })),
      }),
      gzip: true,
    }),
})

/** Structured metadata, whose names may only contain letters, digits and underscores. */
const metadataOf = (row: LogRow) =>
  Object.fromEntries(
    Object.entries({ id: row.id, level: levelOf(row), ...row.log_attributes }).map(([name, value]) => [
      name.replaceAll(/\W/g, '_'),
      value,
    ]),
  )
