import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { controlUrlOf } from '../../../dev/control-database.ts'
import type { Machine } from '../machine.ts'

/** Opens a running `npm start` for the tests of deliveries: its API, its control database and its secrets. */
export function openInstallation({ folder, env, credentials }: Machine) {
  const secrets: Record<string, string> = JSON.parse(readFileSync(join(folder, 'secrets.json'), 'utf8'))
  const url = controlUrlOf(Number(env.POSTGRES_PORT), secrets.CONTROL_PASSWORD ?? '')
  const control = new pg.Pool({ connectionString: url, max: 2 })
  // A killed Postgres ends idle connections too; the next query opens new ones.
  control.on('error', () => {})
  const { base_url, access_token } = credentials()

  /** Calls the API; rejects when no answer arrives, because the installation may be killed at any time. */
  async function call(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> {
    const response = await fetch(new URL(path, base_url), {
      method,
      headers: { authorization: `Bearer ${access_token}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    return { status: response.status, body: await response.json() }
  }

  return {
    call,
    /** The URL of the control database. */
    url,
    encryptionKey: secrets.ENCRYPTION_KEY ?? '',
    rows: async <Row>(query: string, values: unknown[] = []): Promise<Row[]> =>
      (await control.query(query, values)).rows as Row[],
    close: () => control.end(),
  }
}
export type Installation = ReturnType<typeof openInstallation>

const POLL_MS = 50

/** Waits until `probe` returns a value, and returns it; an exception meanwhile counts as "not yet". */
export async function until<T>(what: string, timeoutMs: number, probe: () => Promise<T | undefined> | T | undefined) {
  const giveUpAt = Date.now() + timeoutMs
  let lastError: unknown
  for (;;) {
    try {
      const found = await probe()
      if (found !== undefined) return found
      lastError = undefined
    } catch (error) {
      lastError = error
    }
    if (Date.now() > giveUpAt) throw new Error(`not within ${timeoutMs} ms: ${what}`, { cause: lastError })
    await delay(POLL_MS)
  }
}
