import { APP_OWNER, REALTIME_PUBLICATION } from '../hosted-names.ts'
import { type ProjectNames, quoteLiterals } from '../names.ts'
import { API_ROLES, READER_GROUP } from '../roles.ts'
import { type Cluster, openSession, type Session } from '../session.ts'
import { INTERNAL_SCHEMA, SCHEMA_OWNER, STORAGE_OWNER } from '../storage/names.ts'
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from '../storage/schema.ts'

const EXTENSIONS = ['pgcrypto', 'uuid-ossp']
const API = API_ROLES.join(', ')
const SCHEMAS = ['storage', INTERNAL_SCHEMA]

export async function ensureSchemas(inside: Session): Promise<void> {
  const [found] = await inside.rows<{ exists: boolean }>(
    `SELECT to_regclass('supabase_migrations.schema_migrations') IS NOT NULL AS exists`,
  )
  if (!found?.exists) await inside.rows(projectSchemas(await availableExtensions(inside)))
  await ensureStorageSchema(inside)
}

/** Upgrades the storage schema; keeps what the owner has changed or dropped. */
export async function ensureStorageSchema(inside: Session): Promise<void> {
  const [found] = await inside.rows<{ version: string | null }>(STORAGE_VERSION_QUERY)
  if (found?.version === STORAGE_VERSION) return
  await inside.rows(
    [
      ...SCHEMAS.flatMap((schema) => [
        `CREATE SCHEMA IF NOT EXISTS ${schema}`,
        `ALTER SCHEMA ${schema} OWNER TO ${SCHEMA_OWNER}`,
        // The future owner of a table must be allowed to create tables in its schema.
        `GRANT CREATE ON SCHEMA ${schema} TO pg_database_owner, ${STORAGE_OWNER}`,
      ]),
      ...storageSchema('pg_database_owner'),
      ...APP_RIGHTS,
      `REVOKE CREATE ON SCHEMA ${SCHEMAS} FROM pg_database_owner, ${STORAGE_OWNER}`,
    ].join(';\n'),
  )
}

const APP_RIGHTS = [
  `GRANT USAGE ON SCHEMA storage TO ${APP_OWNER}`,
  `GRANT SELECT, INSERT, UPDATE, DELETE ON storage.buckets, storage.objects TO ${APP_OWNER}`,
  // The owner may have dropped any of these schemas.
  `DO $$ DECLARE name text; BEGIN
     FOR name IN SELECT nspname FROM pg_namespace WHERE nspname IN ('public', 'extensions', 'auth') LOOP
       EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO ${APP_OWNER}', name);
     END LOOP;
   END $$`,
]

async function availableExtensions(inside: Session): Promise<string[]> {
  const rows = await inside.rows<{ name: string }>(
    `SELECT name FROM pg_available_extensions WHERE name IN (${quoteLiterals(EXTENSIONS)})`,
  )
  return rows.map(({ name }) => name)
}

const projectSchemas = (extensions: readonly string[]): string =>
  [
    `GRANT USAGE ON SCHEMA public TO ${API}, ${READER_GROUP}`,
    'CREATE SCHEMA extensions AUTHORIZATION pg_database_owner',
    `GRANT USAGE ON SCHEMA extensions TO ${API}, ${READER_GROUP}`,
    ...extensions.map((name) => `CREATE EXTENSION "${name}" WITH SCHEMA extensions`),
    'CREATE SCHEMA supabase_migrations AUTHORIZATION pg_database_owner',
    `GRANT USAGE ON SCHEMA supabase_migrations TO ${READER_GROUP}`,
    `CREATE TABLE supabase_migrations.schema_migrations (
       version text PRIMARY KEY, statements text[], name text, created_by text, idempotency_key text UNIQUE, rollback text[])`,
    'ALTER TABLE supabase_migrations.schema_migrations OWNER TO pg_database_owner',
    `GRANT SELECT ON supabase_migrations.schema_migrations TO ${READER_GROUP}`,
  ].join('; ')

/** Sets default privileges as the owner: an administrator must not act as the owner in the owner's database. */
export async function prepareAsOwner(cluster: Cluster, names: ProjectNames, runnerPassword: string): Promise<void> {
  const { database, owner, runner, reader } = names
  const session = await openSession(cluster, {
    user: runner,
    password: runnerPassword,
    database,
    settings: { role: owner, search_path: 'pg_catalog', statement_timeout: 30_000, lock_timeout: 10_000 },
  })
  const grants = [
    `IN SCHEMA public GRANT ALL ON TABLES TO ${API}`,
    `IN SCHEMA public GRANT ALL ON SEQUENCES TO ${API}`,
    `IN SCHEMA public GRANT ALL ON FUNCTIONS TO ${API}`,
    `GRANT USAGE ON SCHEMAS TO ${reader}`,
    `GRANT SELECT ON TABLES TO ${reader}`,
    `GRANT SELECT ON SEQUENCES TO ${reader}`,
  ]
  try {
    const defaults = grants.map((grant) => `ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} ${grant}`)
    await session.rows([...defaults, ...appDefaults(names)].join('; '))
  } finally {
    session.close()
  }
}

/** Default privileges and the publication that migrations of apps rely on; the owner may undo them. */
function appDefaults({ owner, reader }: ProjectNames): string[] {
  const kinds = ['TABLES', 'SEQUENCES', 'FUNCTIONS']
  const defaults = [
    ...[...kinds, 'SCHEMAS', 'TYPES'].map((kind) => `${owner} GRANT ALL ON ${kind} TO ${APP_OWNER}`),
    ...kinds.map((kind) => `${APP_OWNER} IN SCHEMA public GRANT ALL ON ${kind} TO ${API}`),
    `${APP_OWNER} GRANT USAGE ON SCHEMAS TO ${reader}`,
    `${APP_OWNER} GRANT SELECT ON TABLES TO ${reader}`,
    `${APP_OWNER} GRANT SELECT ON SEQUENCES TO ${reader}`,
  ]
  return [...defaults.map((rights) => `ALTER DEFAULT PRIVILEGES FOR ROLE ${rights}`), REALTIME_PUBLICATION]
}
