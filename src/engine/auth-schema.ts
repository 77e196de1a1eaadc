import { API_ROLES } from './roles.ts'
import { type Grantees, SCHEMA_OWNER } from './storage/names.ts'

/**
 * SQL for the schema `auth`: the functions and tables that policies, triggers and foreign keys of apps refer to. Creates
 * nothing if the tenant already has a schema of this name.
 */
export function authSchema(owner: string, { server, reader }: Grantees): string {
  const claims = `nullif(current_setting('request.jwt.claims', true), '')::jsonb`
  const claim = (name: string) =>
    `coalesce(nullif(current_setting('request.jwt.claim.${name}', true), ''), ${claims} ->> '${name}')`
  const functions = {
    jwt: ['jsonb', claims],
    uid: ['uuid', `(${claim('sub')})::uuid`],
    role: ['text', claim('role')],
    email: ['text', claim('email')],
  }
  // In a schema that belongs to a service, only the service may create objects.
  const rights = owner === 'pg_database_owner' ? 'ALL' : 'USAGE'
  const define = Object.entries(functions).map(
    ([name, [type, expression]]) =>
      `CREATE FUNCTION auth.${name}() RETURNS ${type} LANGUAGE sql STABLE PARALLEL SAFE RETURN ${expression};
       ALTER FUNCTION auth.${name}() OWNER TO ${owner}`,
  )
  return `DO $$ BEGIN
    IF to_regnamespace('auth') IS NULL THEN
      CREATE SCHEMA auth;
      GRANT ${rights} ON SCHEMA auth TO pg_database_owner;
      GRANT USAGE ON SCHEMA auth TO ${[...API_ROLES, reader, server].join(', ')};
      ${define.join(';\n')};
    END IF;
    IF EXISTS (SELECT FROM pg_proc WHERE oid = to_regprocedure('auth.uid()') AND proowner = '${owner}'::regrole) THEN
      ALTER SCHEMA auth OWNER TO ${SCHEMA_OWNER};
      GRANT ${rights} ON SCHEMA auth TO pg_database_owner WITH GRANT OPTION;
      -- References to its tables are checked as their owner. Triggers of objects run as the storage server's role.
      GRANT USAGE ON SCHEMA auth TO ${[owner, reader, server].join(', ')};
      IF to_regclass('auth.users') IS NULL THEN
        ${[...table('users', USERS, owner, reader), ...table('identities', IDENTITIES, owner, reader), ...INDEXES].join(';\n')};
      END IF;
    END IF;
  END $$`
}

const table = (name: string, columns: string, owner: string, reader: string): string[] => [
  `CREATE TABLE auth.${name} (${columns})`,
  `ALTER TABLE auth.${name} OWNER TO ${owner}`,
  `ALTER TABLE auth.${name} ENABLE ROW LEVEL SECURITY`,
  `GRANT SELECT ON auth.${name} TO ${reader}`,
]

/**
 * The columns that the Auth server's migrations result in. The app, or an Auth server that the owner runs, fills the
 * table.
 */
const USERS = `
  instance_id uuid,
  id uuid PRIMARY KEY,
  aud varchar(255),
  role varchar(255),
  email varchar(255),
  encrypted_password varchar(255),
  email_confirmed_at timestamptz,
  invited_at timestamptz,
  confirmation_token varchar(255),
  confirmation_sent_at timestamptz,
  recovery_token varchar(255),
  recovery_sent_at timestamptz,
  email_change_token_new varchar(255),
  email_change varchar(255),
  email_change_sent_at timestamptz,
  last_sign_in_at timestamptz,
  raw_app_meta_data jsonb,
  raw_user_meta_data jsonb,
  is_super_admin boolean,
  created_at timestamptz,
  updated_at timestamptz,
  phone text UNIQUE,
  phone_confirmed_at timestamptz,
  phone_change text DEFAULT '',
  phone_change_token varchar(255) DEFAULT '',
  phone_change_sent_at timestamptz,
  confirmed_at timestamptz GENERATED ALWAYS AS (least(email_confirmed_at, phone_confirmed_at)) STORED,
  email_change_token_current varchar(255) DEFAULT '',
  email_change_confirm_status smallint DEFAULT 0 CHECK (email_change_confirm_status BETWEEN 0 AND 2),
  banned_until timestamptz,
  reauthentication_token varchar(255) DEFAULT '',
  reauthentication_sent_at timestamptz,
  is_sso_user boolean NOT NULL DEFAULT false,
  deleted_at timestamptz,
  is_anonymous boolean NOT NULL DEFAULT false`

/**
 * The primary key is not named `identities_pkey`: the Auth server's migrations drop a key of that name, and reuse an existing column `id`.
 */
const IDENTITIES = `
  provider_id text NOT NULL,
  user_id uuid NOT NULL REFERENCES auth.users (id) ON DELETE CASCADE,
  identity_data jsonb NOT NULL,
  provider text NOT NULL,
  last_sign_in_at timestamptz,
  created_at timestamptz,
  updated_at timestamptz,
  email text GENERATED ALWAYS AS (lower(identity_data ->> 'email')) STORED,
  id uuid DEFAULT gen_random_uuid() CONSTRAINT identities_id_pkey PRIMARY KEY,
  CONSTRAINT identities_provider_id_provider_unique UNIQUE (provider_id, provider)`

const INDEXES = [
  'CREATE UNIQUE INDEX users_email_partial_key ON auth.users (email) WHERE (is_sso_user = false)',
  'CREATE INDEX users_instance_id_idx ON auth.users (instance_id)',
  'CREATE INDEX identities_user_id_idx ON auth.identities (user_id)',
  'CREATE INDEX identities_email_idx ON auth.identities (email text_pattern_ops)',
]
