import { type SQLWrapper, sql } from 'drizzle-orm'
import {
  apiKeyAssociatedData,
  authSecretAssociatedData,
  branchAssociatedData,
  functionSecretAssociatedData,
  hostAssociatedData,
  logDrainAssociatedData,
  oauthKeyAssociatedData,
  projectAssociatedData,
  rootKeyAssociatedData,
  signingKeyAssociatedData,
  webhookAssociatedData,
} from '../../src/model/secrets/associated-data.ts'
import type { OldSecret } from '../../src/model/tables/webhooks.ts'
import type { ControlDb } from '../seed.ts'

/** A row with a sealed value, as text: its keys, the column `also`, and the value. */
export type SealedRow = Readonly<Record<string, string>> & { value: string }

export interface SealedColumn {
  table: string
  column: string
  type: 'text' | 'jsonb'
  /** The primary key, with types. */
  keys: Readonly<Record<string, 'text' | 'uuid'>>
  /** Another column that the associated data is made from. */
  also?: string
  /** The sealed texts in the value, each with its associated data. */
  sealed(row: SealedRow): [associatedData: string, sealed: string][]
}

const BY_REF = { ref: 'text' } as const
const BY_ID = { id: 'uuid' } as const

const column = (
  table: string,
  column: string,
  keys: SealedColumn['keys'],
  associatedData: (row: SealedRow) => string,
): SealedColumn => ({ table, column, keys, type: 'text', sealed: (row) => [[associatedData(row), row.value]] })

const ofProject = (secret: Parameters<typeof projectAssociatedData>[1]) =>
  column('projects', `sealed_${secret}`, BY_REF, ({ ref = '' }) => projectAssociatedData(ref, secret))
const ofWebhook = (secret: Parameters<typeof webhookAssociatedData>[1]) =>
  column('webhook_endpoints', `sealed_${secret}`, BY_ID, ({ id = '' }) => webhookAssociatedData(id, secret))

/** Every column of the control database with sealed values. */
export const SEALED: readonly SealedColumn[] = [
  ofProject('password'),
  ofProject('runner_password'),
  ofProject('jwt_secret'),
  { ...column('api_keys', 'sealed_key', BY_ID, ({ hash = '' }) => apiKeyAssociatedData(hash)), also: 'hash' },
  column(
    'signing_keys',
    'sealed_private_jwk',
    { project_ref: 'text', id: 'uuid' },
    ({ project_ref: ref = '', id = '' }) => signingKeyAssociatedData({ ref, id }),
  ),
  column('function_secrets', 'sealed_value', { project_ref: 'text', name: 'text' }, ({ project_ref = '', name = '' }) =>
    functionSecretAssociatedData(project_ref, name),
  ),
  {
    table: 'project_settings',
    column: 'value',
    type: 'jsonb',
    keys: { project_ref: 'text', area: 'text' },
    sealed: ofSettings,
  },
  column('branches', 'sealed_secrets', BY_ID, ({ id = '' }) => branchAssociatedData(id)),
  ofWebhook('secret'),
  ofWebhook('headers'),
  {
    table: 'webhook_endpoints',
    column: 'old_secrets',
    type: 'jsonb',
    keys: BY_ID,
    sealed: ({ id = '', value }) =>
      (JSON.parse(value) as OldSecret[]).map(({ sealed }) => [webhookAssociatedData(id, 'secret'), sealed]),
  },
  column('oauth_signing_keys', 'sealed_private_jwk', BY_ID, ({ id = '' }) => oauthKeyAssociatedData(id)),
  column('hosts', 'sealed_key', { name: 'text' }, ({ name = '' }) => hostAssociatedData(name)),
  column('log_drains', 'sealed_secrets', BY_ID, ({ id = '' }) => logDrainAssociatedData(id)),
]

function ofSettings({ project_ref: ref = '', area, value }: SealedRow): [string, string][] {
  if (area === 'pgsodium') {
    const { sealed_root_key } = JSON.parse(value) as { sealed_root_key: string }
    return [[rootKeyAssociatedData(ref), sealed_root_key]]
  }
  if (area !== 'auth') return []
  const { secrets } = JSON.parse(value) as { secrets: Record<string, { sealed: string }> }
  return Object.entries(secrets).map(([field, { sealed }]) => [authSecretAssociatedData(ref, field), sealed])
}

const PAGE_ROWS = 500

/** Reads all rows of a column in pages, ordered by the primary key. */
export async function* readPages(db: ControlDb, { table, column, keys, also }: SealedColumn) {
  const names = Object.keys(keys)
  const key = list(names.map((name) => sql.identifier(name)))
  const read = [...names, ...(also ? [also] : [])].map((name) => sql`${sql.identifier(name)}::text`)
  for (let last: SealedRow | undefined; ; ) {
    const after = last && list(Object.entries(keys).map(([name, type]) => sql`${last?.[name]}::${sql.raw(type)}`))
    const { rows } = await db.execute<SealedRow>(sql`
      select ${list(read)}, ${sql.identifier(column)}::text as value from ${sql.identifier(table)}
       where ${sql.identifier(column)} is not null ${after ? sql`and (${key}) > (${after})` : sql``}
       order by ${key} limit ${PAGE_ROWS}`)
    if (rows.length > 0) yield rows
    if (rows.length < PAGE_ROWS) return
    last = rows.at(-1)
  }
}

/** The sealed texts of a column, each with its associated data. */
export async function* readSealed(db: ControlDb, column: SealedColumn) {
  for await (const rows of readPages(db, column)) yield* rows.flatMap(column.sealed)
}

export interface Rewritten {
  row: SealedRow
  /** The new value of the row. */
  after: string
  /** Number of resealed texts in the new value. */
  count: number
}

export const sumOf = (counted: readonly Pick<Rewritten, 'count'>[]): number =>
  counted.reduce((sum, { count }) => sum + count, 0)

/** Writes the new values, except to rows that have changed since they were read. Returns the number of sealed texts written. */
export async function writeBack(
  db: ControlDb,
  { table, column, keys, type }: SealedColumn,
  rewritten: readonly Rewritten[],
): Promise<number> {
  if (rewritten.length === 0) return 0
  const names = Object.keys(keys)
  const given = JSON.stringify(rewritten.map(({ row, after, count }) => ({ ...row, after, count })))
  const of = (table: string, name: string) => sql`${sql.identifier(table)}.${sql.identifier(name)}`
  const key = (table: string) => list(names.map((name) => of(table, name)))
  const columns = Object.entries(keys).map(([name, type]) => sql`${sql.identifier(name)} ${sql.raw(type)}`)
  // Locked rows are skipped: while this waited for one, others would wait for all rows locked here.
  const { rows } = await db.execute<{ count: number }>(sql`
    with n as (
      select * from jsonb_to_recordset(${given}::jsonb) as n (${list(columns)}, value text, after text, count int)
    ), free as (
      select ${key('t')} from ${sql.identifier(table)} as t where (${key('t')}) in (select ${key('n')} from n)
         for no key update skip locked
    )
    update ${sql.identifier(table)} as t set ${sql.identifier(column)} = n.after::${sql.raw(type)}
      from n join free on (${key('free')}) = (${key('n')})
     where (${key('t')}) = (${key('n')}) and ${of('t', column)} = n.value::${sql.raw(type)}
    returning n.count`)
  return sumOf(rows)
}

const list = (parts: readonly SQLWrapper[]) => sql.join([...parts], sql`, `)
