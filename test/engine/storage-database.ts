import type pg from 'pg'
import type { Statement } from '../../src/engine/engine.ts'
import { createBucket } from '../../src/services/storage/statements/buckets.ts'
import type { NewObject } from '../../src/services/storage/statements/object-rows.ts'
import { insertObject } from '../../src/services/storage/statements/objects.ts'
import type { HostEngine } from './host-engine.ts'

export const USER = '11111111-1111-4111-8111-111111111111'

export interface Caller {
  role: string
  claims?: Record<string, unknown>
}
export const anon: Caller = { role: 'anon' }
export const user = (sub = USER): Caller => ({ role: 'authenticated', claims: { sub, role: 'authenticated' } })
export const service: Caller = { role: 'service_role' }

export type StorageDatabase = Awaited<ReturnType<typeof newStorageDatabase>>

/** Makes a project's database, opened as the storage server opens it, as its owner, and as the superuser. */
export async function newStorageDatabase({ create, connect }: HostEngine) {
  const ref = await create()
  const admin = await connect(ref)
  const open = () => connect(ref, 'supabase_storage_admin')
  const server = await open()

  const asServer = async <Row>({ text, params }: Statement): Promise<Row[]> =>
    (await server.query(text, [...params])).rows
  return {
    asServer,
    /** Runs a transaction in a session of its own, so that several can run at once. */
    async as<Row>(caller: Caller, { text, params }: Statement): Promise<Row[]> {
      const client = await open()
      try {
        await client.query('begin')
        await switchRole(client, caller)
        const { rows } = await client.query(text, [...params])
        await client.query('commit')
        return rows
      } finally {
        await client.end()
      }
    },
    sql: async (query: string) => (await admin.query(query)).rows,
    asOwner: (): Promise<pg.Client> => connect(ref, 'postgres'),
    asSuperuser: (): Promise<pg.Client> => connect(ref),
    policies: (...policies: string[]) =>
      admin.query(
        policies
          .map((policy, n) => `create policy policy_${crypto.randomUUID().slice(0, 8)}_${n} ${policy}`)
          .join(';') || 'select',
      ),
    async bucket(fields: { id?: string; public?: boolean; names?: readonly string[] } = {}): Promise<string> {
      const { id = `bucket-${crypto.randomUUID()}`, public: isPublic = false, names = [] } = fields
      const rules = { fileSizeLimit: null, allowedMimeTypes: null, type: 'STANDARD', ownerId: null }
      await asServer(createBucket({ id, name: id, public: isPublic, ...rules }))
      for (const name of names) await asServer(insertObject(newObject(id, name)))
      return id
    },
    removed: async (versions: readonly (string | null | undefined)[]) =>
      (await admin.query('select version from pgbouncer.removed_versions where version = any ($1)', [versions])).rows
        .length,
    close: () => Promise.all([admin.end(), server.end()]),
  }
}

export const newObject = (bucketId: string, name: string, fields: Partial<NewObject> = {}): NewObject => ({
  id: crypto.randomUUID(),
  bucketId,
  name,
  version: crypto.randomUUID(),
  ownerId: USER,
  metadata: { size: 3 },
  userMetadata: null,
  ...fields,
})

async function switchRole(client: pg.Client, { role, claims = {} }: Caller): Promise<void> {
  await client.query(`select set_config('request.jwt.claims', $1, true), set_config('role', $2, true)`, [
    JSON.stringify(claims),
    role,
  ])
}
