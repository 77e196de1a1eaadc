import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { jwtSecretOf } from '../../model/secrets/project.ts'
import { openSigningKey } from '../../model/secrets/signing-key.ts'
import type { API_KEY_TYPES, SIGNING_KEY_STATUSES } from '../../model/tables/index.ts'
import { type Algorithm, type Jwk, secretJwk, type VerificationKey } from '../../platform/jwt/jwk.ts'

/** Whom a project's own services believe, opened and ready to be asked. */
export interface Trust {
  /** Tells it from every other one that this isolate has opened. */
  id: number
  /** Empty where it is no project's. */
  ref: string
  /** The JWT secret, unless it was revoked. */
  legacy: VerificationKey | undefined
  /** All that are not revoked, by `kid`, oldest first; that of the JWT secret once it is a signing key is among them. */
  keys: ReadonlyMap<string, VerificationKey>
  issuers: readonly Issuer[]
  /** Those that are not deleted, by the SHA-256 of the key in base64url. */
  apiKeys: ReadonlyMap<string, TrustedApiKey>
  /** Whether the anon and service_role keys are taken. */
  takesLegacyApiKeys: boolean
}

/** Another party whose tokens are taken. */
interface Issuer {
  /** What its tokens say in `iss`; null where that is not known, and then its keys alone decide. */
  issuer: string | null
  keys: readonly VerificationKey[]
}

interface TrustedApiKey {
  id: string
  type: (typeof API_KEY_TYPES)[number]
  /** Claims of whom the key stands for. */
  template: Record<string, unknown> | null
}

/** As the control database tells it, all of it text: what is sealed is opened once for each text. */
export interface SealedTrust {
  ref: string
  text: string
  opened: Trust | undefined
}

interface Told {
  sealedJwtSecret: string | null
  keys: ToldKey[] | null
  issuers: { issuer: string | null; jwks: unknown }[] | null
  apiKeys: (TrustedApiKey & { hash: string })[] | null
  legacyApiKeys: boolean | null
}

interface ToldKey {
  id: string
  algorithm: Algorithm
  status: (typeof SIGNING_KEY_STATUSES)[number]
  isLegacy: boolean
  /** Of a symmetric key alone: nobody verifies with the others. */
  sealed: string | null
  jwk: Jwk | null
}

/** So long are the keys of an issuer believed that can no more be fetched: they may have been withdrawn. */
const BELIEVED_HOURS = 24

/** Of the project `p` of the statement that it stands in: whatever opens a project reads it with the same round trip. */
export const TRUST = sql.raw(`json_build_object(
  'sealedJwtSecret', p.sealed_jwt_secret,
  'keys', (
    select json_agg(json_build_object('id', k.id, 'algorithm', k.algorithm, 'status', k.status, 'isLegacy', k.is_legacy,
      'sealed', case when k.algorithm = 'HS256' then k.sealed_private_jwk end, 'jwk', k.public_jwk)
      order by k.created_at, k.id)
    from signing_keys k where k.project_ref = p.ref and (k.status <> 'revoked' or k.is_legacy)),
  'issuers', (
    select json_agg(json_build_object('issuer', t.issuer, 'jwks',
      case when t.refresh_at is null or t.resolved_at >= now() - interval '${BELIEVED_HOURS} hours'
        then coalesce(t.resolved_jwks, t.custom_jwks) end)
      order by t.inserted_at, t.id)
    from third_party_auths t where t.project_ref = p.ref),
  'apiKeys', (
    select json_agg(json_build_object('id', a.id, 'type', a.type, 'hash', a.hash, 'template', a.secret_jwt_template)
      order by a.id)
    from api_keys a where a.project_ref = p.ref and a.deleted_at is null),
  'legacyApiKeys', (
    select (s.value ->> 'enabled')::boolean
    from project_settings s where s.project_ref = p.ref and s.area = 'legacy_api_keys'))::text`)

const SEALED_MAX = 20_000
/** By an isolate, in each of its caches: what is opened of them takes about as much again. */
export const TRUST_CHARACTERS_KEPT = 16 * 1024 * 1024
const sealed = new Map<string, SealedTrust>()
let characters = 0

/** The same one as long as the same is told of the project. */
export function sealedTrust(ref: string, text: string): SealedTrust {
  const known = sealed.get(ref)
  if (known?.text === text) return known
  drop(ref)
  for (const [oldest] of sealed) {
    if (sealed.size < SEALED_MAX && characters + text.length <= TRUST_CHARACTERS_KEPT) break
    drop(oldest)
  }
  const told = { ref, text, opened: undefined }
  characters += text.length
  sealed.set(ref, told)
  return told
}

function drop(ref: string): void {
  characters -= sealed.get(ref)?.text.length ?? 0
  sealed.delete(ref)
}

/** At once for all but the first who asks. */
export async function openTrust(ctx: SystemCtx, trust: SealedTrust): Promise<Trust> {
  trust.opened ??= await open(ctx, trust)
  return trust.opened
}

let opened = 0

async function open(ctx: SystemCtx, { ref, text }: SealedTrust): Promise<Trust> {
  const { sealedJwtSecret, keys, issuers, apiKeys, legacyApiKeys } = JSON.parse(text) as Told
  const legacyRow = keys?.find(({ isLegacy }) => isLegacy)
  const isRevoked = legacyRow?.status === 'revoked'
  const secret = isRevoked ? undefined : secretJwk(await jwtSecretOf(ctx, { ref, sealedJwtSecret }))
  const legacy: VerificationKey | undefined = secret && { algorithm: 'HS256', kid: legacyRow?.id, jwk: secret }
  const verifying = await Promise.all((keys ?? []).map((key) => (key.isLegacy ? legacy : keyOf(ctx, ref, key))))
  return {
    id: ++opened,
    ref,
    legacy,
    keys: new Map(verifying.flatMap((key) => (key?.kid === undefined ? [] : [[key.kid, key]]))),
    issuers: (issuers ?? []).map(({ issuer, jwks }) => ({ issuer, keys: foreignKeys(jwks) })),
    apiKeys: new Map((apiKeys ?? []).map(({ hash, ...key }) => [hash, key])),
    takesLegacyApiKeys: legacyApiKeys ?? true,
  }
}

async function keyOf(ctx: SystemCtx, ref: string, { id, algorithm, sealed, jwk }: ToldKey): Promise<VerificationKey> {
  const known = sealed === null ? jwk : await openSigningKey(ctx, { ref, id }, sealed)
  if (!known) throw new Error(`the signing key ${id} has no key`)
  return { algorithm, kid: id, jwk: known }
}

/** Public keys alone; whatever else a set holds opens nothing. */
function foreignKeys(jwks: unknown): VerificationKey[] {
  const { keys } = (jwks ?? {}) as { keys?: unknown }
  return Array.isArray(keys) ? keys.flatMap(foreignKey) : []
}

function foreignKey(jwk: Jwk | null): VerificationKey[] {
  const algorithm = jwk && algorithmOf(jwk)
  if (!algorithm || (jwk.use !== undefined && jwk.use !== 'sig')) return []
  if (jwk.alg !== undefined && jwk.alg !== algorithm) return []
  return [{ algorithm, kid: jwk.kid, jwk }]
}

/** By what the key is, whatever it says that it is for. */
export function algorithmOf({ kty, crv }: Jwk): Algorithm | undefined {
  if (kty === 'RSA') return 'RS256'
  if (kty === 'EC' && crv === 'P-256') return 'ES256'
  return kty === 'OKP' && crv === 'Ed25519' ? 'EdDSA' : undefined
}

/** What trusts certain keys and nothing else. */
export const trustIn = ({ legacy, keys = new Map() }: Partial<Pick<Trust, 'legacy' | 'keys'>>): Trust => ({
  id: ++opened,
  ref: '',
  legacy,
  keys,
  issuers: [],
  apiKeys: new Map(),
  takesLegacyApiKeys: true,
})

/** The public keys of all that a project signs with, as anybody may read them. */
export const publicKeysOf = ({ keys }: Trust): Jwk[] =>
  Array.from(keys.values(), ({ jwk }) => jwk).filter(({ kty }) => kty !== 'oct')
