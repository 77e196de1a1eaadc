import { join } from 'node:path'
import pg from 'pg'
import { inject } from 'vitest'
import { ROWS_OF_TEXT } from './host/call-host.ts'

interface Place {
  url: string
  key: string
  /** The folder of the sockets. */
  run: string
}

/**
 * Connects a superuser to a project's database, or to the control plane's instance, on the run's host or on another.
 */
export async function adminClient(name: string, { database = 'postgres', at = inject('host') as Place } = {}) {
  await wake(name, at)
  const client = new pg.Client({ host: join(at.run, name), user: 'supabase_admin', database })
  // A cut connection is not an error of the run.
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Returns the rows of one query that a superuser runs. */
export async function adminRows<Row extends pg.QueryResultRow>(
  name: string,
  query: string,
  values?: unknown[],
): Promise<Row[]> {
  const client = await adminClient(name)
  try {
    return (await client.query<Row>(query, values)).rows
  } finally {
    await client.end()
  }
}

/** Returns the state that the host reports, without waking the instance; undefined if it does not exist. */
export async function instanceState(name: string, { url, key }: Place = inject('host')): Promise<string | undefined> {
  const response = await fetch(`${url}/host/v1/instances/${name}`, { headers: { authorization: `Bearer ${key}` } })
  const body = (await response.json()) as { state: string }
  return response.status === 404 ? undefined : body.state
}

/** Sends a request to the control API of the run's host and returns the body of the answer. */
export async function askHost<Reply>(method: 'GET' | 'PUT' | 'POST' | 'DELETE', path: string, body?: object) {
  const { url, key } = inject('host')
  const response = await fetch(`${url}/host/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${text}`)
  return (text === '' ? undefined : JSON.parse(text)) as Reply
}

/** Makes the host refuse all sessions of an instance, which the control plane takes for running, until `resume`. */
export const onHost = (name: string, change: 'pause' | 'resume') =>
  askHost<void>('POST', `/instances/${name}/${change}`)

/** Returns the names of the host's instances. */
export const instancesOfHost = async () =>
  (await askHost<{ name: string }[]>('GET', '/instances')).map(({ name }) => name)

/** Wakes an instance: a sleeping one has no socket. */
async function wake(name: string, { url, key }: Place): Promise<void> {
  const response = await fetch(`${url}/sql`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${key}`,
      'neon-connection-string': `postgresql://supabase_admin.${name}@host/postgres`,
      ...ROWS_OF_TEXT,
    },
    body: JSON.stringify({ query: 'SELECT', params: [] }),
  })
  if (!response.ok) throw new Error(`${name} is not awake: ${await response.text()}`)
}
