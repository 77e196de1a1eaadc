import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { openApiKey } from '../../model/secrets/api-key.ts'
import { openFunctionSecret } from '../../model/secrets/function.ts'
import { jwtSecretOf, passwordOf } from '../../model/secrets/project.ts'
import type { API_KEY_TYPES } from '../../model/tables/index.ts'
import { rowsOf } from '../../platform/db/client.ts'
import { legacyKeys } from '../gateway/credentials.ts'
import { projectUrl } from '../gateway/project-address.ts'
import { openTrust, publicKeysOf, sealedTrust, TRUST } from '../gateway/trust.ts'

interface ProjectRow {
  region: string
  createdAt: string
  engineState: unknown
  sealedPassword: string
  sealedJwtSecret: string | null
  secrets: { name: string; sealedValue: string }[]
  apiKeys: { type: (typeof API_KEY_TYPES)[number]; name: string; sealedKey: string; hash: string }[]
  trust: string
}

/** Variables that the installation sets for every program. */
export const INSTALLATION_VARIABLES = [
  'SUPABASE_URL',
  'SUPABASE_ANON_KEY',
  'SUPABASE_SERVICE_ROLE_KEY',
  'SUPABASE_PUBLISHABLE_KEYS',
  'SUPABASE_SECRET_KEYS',
  'SUPABASE_JWKS',
  'SUPABASE_DB_URL',
  'SB_REGION',
  'SB_EXECUTION_ID',
] as const

/**
 * Environment variables of a project's programs: its secrets and the variables above, which secrets cannot override.
 */
export async function projectEnvironment(ctx: SystemCtx, ref: string): Promise<Record<string, string>> {
  const [project] = await rowsOf<ProjectRow>(
    ctx.db,
    sql`select p.region, p.created_at as "createdAt", p.engine_state as "engineState",
        p.sealed_password as "sealedPassword", p.sealed_jwt_secret as "sealedJwtSecret",
        coalesce((select json_agg(json_build_object('name', s.name, 'sealedValue', s.sealed_value))
          from function_secrets s where s.project_ref = p.ref), '[]') as secrets,
        coalesce((select json_agg(json_build_object('type', a.type, 'name', a.name, 'sealedKey', a.sealed_key,
          'hash', a.hash) order by a.inserted_at, a.id)
          from api_keys a where a.project_ref = p.ref and a.deleted_at is null), '[]') as "apiKeys", ${TRUST} as trust
      from projects p where p.ref = ${ref} and p.removed_at is null`,
  )
  if (!project) throw new Error(`the project ${ref} has no row`)
  const [secrets, keys, apiKeys, jwks, databaseUrl] = await Promise.all([
    openSecrets(ctx, ref, project),
    keysOf(ctx, ref, project),
    openApiKeys(ctx, project),
    publicKeys(ctx, ref, project),
    databaseUrlOf(ctx, ref, project),
  ])
  const variables: Record<(typeof INSTALLATION_VARIABLES)[number], string> = {
    SUPABASE_URL: projectUrl(ctx.config, ref),
    SUPABASE_ANON_KEY: keys.anon,
    SUPABASE_SERVICE_ROLE_KEY: keys.service_role,
    SUPABASE_PUBLISHABLE_KEYS: JSON.stringify(apiKeys.publishable),
    SUPABASE_SECRET_KEYS: JSON.stringify(apiKeys.secret),
    SUPABASE_JWKS: JSON.stringify({ keys: jwks }),
    SUPABASE_DB_URL: databaseUrl,
    SB_REGION: project.region,
    SB_EXECUTION_ID: crypto.randomUUID(),
  }
  return { ...secrets, ...variables }
}

async function openSecrets({ config }: SystemCtx, ref: string, { secrets }: ProjectRow) {
  const open = async ({ name, sealedValue }: ProjectRow['secrets'][number]) =>
    [name, await openFunctionSecret(config.ENCRYPTION_KEY, ref, name, sealedValue)] as const
  return Object.fromEntries(await Promise.all(secrets.map(open)))
}

async function keysOf(ctx: SystemCtx, ref: string, { createdAt, sealedJwtSecret }: ProjectRow) {
  const jwtSecret = await jwtSecretOf(ctx, { ref, sealedJwtSecret })
  return legacyKeys({ ref, createdAt: new Date(createdAt), jwtSecret })
}

/** API keys by name, for each type. */
async function openApiKeys({ config }: SystemCtx, { apiKeys }: ProjectRow) {
  const opened = await Promise.all(
    apiKeys.map(async (row) => ({ ...row, key: await openApiKey(config.ENCRYPTION_KEY, row) })),
  )
  const named = (type: (typeof API_KEY_TYPES)[number]) =>
    Object.fromEntries(opened.flatMap((row) => (row.type === type ? [[row.name, row.key]] : [])))
  return { publishable: named('publishable'), secret: named('secret') }
}

const publicKeys = async (ctx: SystemCtx, ref: string, { trust }: ProjectRow) =>
  publicKeysOf(await openTrust(ctx, sealedTrust(ref, trust)))

async function databaseUrlOf(ctx: SystemCtx, ref: string, { engineState, sealedPassword }: ProjectRow) {
  const { host, port, user, database } = ctx.engine.connection({ ref, engineState })
  const password = encodeURIComponent(await passwordOf(ctx, { ref, sealedPassword }))
  return `postgresql://${encodeURIComponent(user)}:${password}@${host}:${port}/${database}`
}
