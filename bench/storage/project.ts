import { join } from 'node:path'
import type pg from 'pg'
import { signClaims } from '../../src/services/gateway/credentials.ts'
import type { OpenedProject } from '../../src/services/gateway/open-project.ts'
import type { Environment } from '../environment.ts'
import { ownerUrl } from '../project.ts'
import { connectClient, createServedProject } from '../served-project.ts'

export const USER = '11111111-1111-4111-8111-111111111111'
export const BUCKETS = { private: 'files', public: 'pictures', thousands: 'ten-thousand', million: 'million' }
export const MILLION = 1_000_000

interface Bench {
  project: OpenedProject
  /** Token of a user whom a policy allows everything with their own objects. */
  token: string
  /** Connects directly to Postgres as the storage server's role. */
  connect(): Promise<pg.Client>
}

/** Creates a project through the API, with buckets; the objects to be listed are only rows. */
export async function prepareProject(environment: Environment): Promise<Bench> {
  const { ref, jwtSecret, open } = await createServedProject(environment, 'storage')
  const owner = await connectClient({ connectionString: ownerUrl(environment.gatewayPort, ref).href })
  await seedObjects(owner)
  await owner.end()
  return {
    project: await open(),
    token: await signClaims({ jwtSecret }, { sub: USER, role: 'authenticated' }, 3600, new Date()),
    connect: () =>
      connectClient({ host: join(environment.sockets, ref), user: 'supabase_storage_admin', database: 'postgres' }),
  }
}

async function seedObjects(owner: pg.Client): Promise<void> {
  await owner.query(`
    insert into storage.buckets (id, name, public) select id, id, id = '${BUCKETS.public}'
    from unnest(array['${Object.values(BUCKETS).join("', '")}']) as id`)
  await owner.query(`
    create policy own on storage.objects to authenticated
      using (owner_id = (select auth.uid())::text) with check (owner_id = (select auth.uid())::text)`)
  for (const [bucket, count] of [[BUCKETS.thousands, 10_000] as const, [BUCKETS.million, MILLION] as const]) {
    await owner.query(`
      insert into storage.objects (id, bucket_id, name, owner, owner_id, version, metadata)
      select uuidv7(), '${bucket}', ${NAME}, '${USER}', '${USER}', uuidv7()::text, jsonb_build_object(
        'eTag', '"' || md5(n::text) || '"', 'size', 1024, 'mimetype', 'image/jpeg', 'cacheControl', 'max-age=3600',
        'lastModified', '2026-01-01T00:00:00.000Z', 'contentLength', 1024, 'httpStatusCode', 200)
      from generate_series(0, ${count - 1}) as n`)
  }
  await owner.query('vacuum analyze storage.objects')
}

/** SQL for the name of the n-th object: of each hundred, ten are in a folder, which sorts after the other ninety. */
const NAME = `'picture-' || lpad((n / 100)::text, 5, '0') || case when n % 100 < 10 then '/' else '-' end || lpad((n % 100)::text, 2, '0') || '.jpg'`

/** The name of the n-th object in the bucket with a million objects. */
export const nameOf = (n: number): string => {
  const [hundreds, rest] = [Math.floor(n / 100), n % 100]
  return `picture-${String(hundreds).padStart(5, '0')}${rest < 10 ? '/' : '-'}${String(rest).padStart(2, '0')}.jpg`
}
