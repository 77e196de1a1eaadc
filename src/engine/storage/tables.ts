import { API_ROLES } from '../roles.ts'
import { type Grantees, SCHEMA_OWNER, STORAGE_OWNER } from './names.ts'

const API = API_ROLES.join(', ')

export function tables({
  leakproof,
  tableOwner,
  grantees,
}: {
  leakproof: boolean
  tableOwner: string
  grantees: Grantees
}): string[] {
  const { server, reader } = grantees
  return [
    'CREATE SCHEMA IF NOT EXISTS storage',
    `ALTER SCHEMA storage OWNER TO ${SCHEMA_OWNER}`,
    `GRANT USAGE ON SCHEMA storage TO pg_database_owner, ${API}, ${reader}, ${server}, ${STORAGE_OWNER}`,
    createUnless(
      `to_regtype('storage.buckettype')`,
      `CREATE TYPE storage.buckettype AS ENUM ('STANDARD', 'ANALYTICS');
       ALTER TYPE storage.buckettype OWNER TO ${STORAGE_OWNER}`,
    ),
    leakproof ? FOLDED : FOLDED.replace(' LEAKPROOF', ''),
    `ALTER FUNCTION storage.folded(text) OWNER TO ${STORAGE_OWNER}`,
    tenantTable('storage.buckets', BUCKETS, tableOwner, reader),
    tenantTable('storage.objects', `${OBJECTS}; ${TIMED_IDS}`, tableOwner, reader),
    'CREATE INDEX IF NOT EXISTS objects_folded_name ON storage.objects (bucket_id, storage.folded(name))',
    'CREATE INDEX IF NOT EXISTS objects_version ON storage.objects (version)',
    `GRANT SELECT, INSERT, UPDATE, DELETE ON storage.buckets, storage.objects TO ${server}`,
  ]
}

/**
 * Creates a table for which the project's owner may write policies and triggers; later runs do not restore revoked rights.
 * The API's roles get the rights that policies restrict, and so neither TRUNCATE nor TRIGGER.
 */
function tenantTable(table: string, columns: string, owner: string, reader: string): string {
  return createUnless(
    `to_regclass('${table}')`,
    `CREATE TABLE ${table} ${columns};
     ALTER TABLE ${table} OWNER TO ${owner};
     ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY;
     GRANT SELECT, INSERT, UPDATE, DELETE ON ${table} TO ${API};
     GRANT ALL ON ${table} TO service_role;
     GRANT SELECT ON ${table} TO ${reader}`,
  )
}

const createUnless = (found: string, statements: string) =>
  `DO $$ BEGIN IF ${found} IS NULL THEN ${statements}; END IF; END $$`

const BUCKETS = `(
  id text COLLATE "C" PRIMARY KEY,
  name text COLLATE "C" NOT NULL CONSTRAINT bname UNIQUE CHECK (char_length(name) BETWEEN 1 AND 100),
  owner uuid,
  owner_id text,
  created_at timestamptz DEFAULT now(),
  updated_at timestamptz DEFAULT now(),
  public boolean NOT NULL DEFAULT false,
  avif_autodetection boolean NOT NULL DEFAULT false,
  file_size_limit bigint,
  allowed_mime_types text[],
  type storage.buckettype NOT NULL DEFAULT 'STANDARD')`

// Names sort by their bytes, so that a prefix is one range of the index.
const OBJECTS = `(
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  bucket_id text COLLATE "C" NOT NULL CONSTRAINT "objects_bucketId_fkey" REFERENCES storage.buckets (id),
  name text COLLATE "C" NOT NULL,
  owner uuid,
  owner_id text,
  created_at timestamptz DEFAULT now(),
  updated_at timestamptz DEFAULT now(),
  last_accessed_at timestamptz DEFAULT now(),
  metadata jsonb,
  user_metadata jsonb,
  path_tokens text[] GENERATED ALWAYS AS (string_to_array(name, '/')) STORED,
  version text COLLATE "C",
  CONSTRAINT bucketid_objname UNIQUE (bucket_id, name))`

// Ids that grow with time are cheaper to index. Postgres generates them since version 18.
const TIMED_IDS = `IF to_regprocedure('uuidv7()') IS NOT NULL THEN
  ALTER TABLE storage.objects ALTER COLUMN id SET DEFAULT uuidv7(); END IF`

// Under row-level security only leakproof functions can be index conditions. PL/pgSQL prevents the inlining of lower(),
// which is not leakproof. In Postgres 16 only ASCII is folded.
const FOLDED = `DO $do$ BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION storage.folded(text) RETURNS text
      LANGUAGE plpgsql IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS $$ BEGIN RETURN lower($1 COLLATE %I); END $$',
    CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN 'pg_c_utf8' ELSE 'C' END);
END $do$`
