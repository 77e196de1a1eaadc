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

/** Of a row: its keys, what else tells the place, and the column's value, as text. */
export type SealedRow = Readonly<Record<string, string>> & { value: string }

export interface SealedColumn {
  table: string
  column: string
  type: 'text' | 'jsonb'
  /** The primary key, with types. */
  keys: Readonly<Record<string, 'text' | 'uuid'>>
  /** Another column that tells the place. */
  also?: string
  /** What is sealed in the value, by the place that it belongs to. */
  sealed(row: SealedRow): [place: string, sealed: string][]
}

const BY_REF = { ref: 'text' } as const
const BY_ID = { id: 'uuid' } as const

const column = (
  table: string,
  column: string,
  keys: SealedColumn['keys'],
  place: (row: SealedRow) => string,
): SealedColumn => ({ table, column, keys, type: 'text', sealed: (row) => [[place(row), row.value]] })

const ofProject = (secret: Parameters<typeof projectAssociatedData>[1]) =>
  column('projects', `sealed_${secret}`, BY_REF, ({ ref = '' }) => projectAssociatedData(ref, secret))
const ofWebhook = (secret: Parameters<typeof webhookAssociatedData>[1]) =>
  column('webhook_endpoints', `sealed_${secret}`, BY_ID, ({ id = '' }) => webhookAssociatedData(id, secret))

/** Every column of the control database that holds sealed values. */
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

const PAGE = 500

/** Every row of a column in turn, by its primary key, so many at a time. */
export async function* pagesOf(db: ControlDb, { table, column, keys, also }: SealedColumn) {
  const names = Object.keys(keys)
  const key = list(names.map((name) => sql.identifier(name)))
  const read = [...names, ...(also ? [also] : [])].map((name) => sql`${sql.identifier(name)}::text`)
  for (let last: SealedRow | undefined; ; ) {
    const after = last && list(Object.entries(keys).map(([name, type]) => sql`${last?.[name]}::${sql.raw(type)}`))
    const { rows } = await db.execute<SealedRow>(sql`
      select ${list(read)}, ${sql.identifier(column)}::text as value from ${sql.identifier(table)}
       where ${sql.identifier(column)} is not null ${after ? sql`and (${key}) > (${after})` : sql``}
       order by ${key} limit ${PAGE}`)
    if (rows.length > 0) yield rows
    if (rows.length < PAGE) return
    last = rows.at(-1)
  }
}

export interface Rewritten {
  row: SealedRow
  /** In the place of the row's. */
  after: string
  /** How many sealed values are new in it. */
  count: number
}

export const sumOf = (counted: readonly Pick<Rewritten, 'count'>[]): number =>
  counted.reduce((sum, { count }) => sum + count, 0)

/** Returns how many sealed values were written: what somebody else has changed since it was read stays. */
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
  // Who has locked a row is not waited for: meanwhile others would wait for all that is locked here.
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
