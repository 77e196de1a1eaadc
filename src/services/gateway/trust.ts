import { sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { jwtSecretOf } from '../../model/secrets/project.ts'
import { openSigningKey } from '../../model/secrets/signing-key.ts'
import type { API_KEY_TYPES, SIGNING_KEY_STATUSES } from '../../model/tables/index.ts'
import { type Algorithm, type Jwk, secretJwk, type VerificationKey } from '../../platform/jwt/jwk.ts'
import { SizedCache } from '../../platform/sized-cache.ts'

/** The keys and issuers that a project's own services accept, with all secrets opened. */
export interface Trust {
  /** Unique in this isolate. */
  id: number
  /** The project; empty for the keys of a `UrlSigner`. */
  ref: string
  /** The JWT secret, unless it is revoked. */
  legacy: VerificationKey | undefined
  /** Signing keys that are not revoked, by `kid`, oldest first; includes the JWT secret once it is a signing key. */
  keys: ReadonlyMap<string, VerificationKey>
  issuers: readonly Issuer[]
  /** API keys that are not deleted, by the base64url SHA-256 of the key. */
  apiKeys: ReadonlyMap<string, TrustedApiKey>
  /** Whether the anon and service_role JWTs are accepted. */
  acceptsLegacyApiKeys: boolean
}

/** A third party whose tokens are accepted. */
interface Issuer {
  /** The `iss` claim of its tokens. Null if unknown: then its keys alone decide. */
  issuer: string | null
  keys: readonly VerificationKey[]
}

interface TrustedApiKey {
  id: string
  type: (typeof API_KEY_TYPES)[number]
  /** The claims that the key stands for. */
  template: Record<string, unknown> | null
}

/** A project's Trust as JSON text of the control database, with sealed secrets; they are opened once per text. */
export interface SealedTrust {
  ref: string
  text: string
  opened: Trust | undefined
}

interface TrustJson {
  sealedJwtSecret: string | null
  keys: SigningKeyJson[] | null
  issuers: { issuer: string | null; jwks: unknown }[] | null
  apiKeys: (TrustedApiKey & { hash: string })[] | null
  legacyApiKeys: boolean | null
}

interface SigningKeyJson {
  id: string
  algorithm: Algorithm
  status: (typeof SIGNING_KEY_STATUSES)[number]
  isLegacy: boolean
  /** Set for symmetric keys only: other private keys do not verify. */
  sealed: string | null
  jwk: Jwk | null
}

/** Time for which the keys of an issuer are accepted while they cannot be fetched. The issuer may have withdrawn them. */
const STALE_KEYS_HOURS_MAX = 24

/** SQL expression for the Trust of project `p`, so that one statement reads a project and its Trust. */
export const TRUST = sql.raw(`json_build_object(
  'sealedJwtSecret', p.sealed_jwt_secret,
  'keys', (
    select json_agg(json_build_object('id', k.id, 'algorithm', k.algorithm, 'status', k.status, 'isLegacy', k.is_legacy,
      'sealed', case when k.algorithm = 'HS256' then k.sealed_private_jwk end, 'jwk', k.public_jwk)
      order by k.created_at, k.id)
    from signing_keys k where k.project_ref = p.ref and (k.status <> 'revoked' or k.is_legacy)),
  'issuers', (
    select json_agg(json_build_object('issuer', t.issuer, 'jwks',
      case when t.refresh_at is null or t.resolved_at >= now() - interval '${STALE_KEYS_HOURS_MAX} hours'
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

/** Bound of each cache that holds texts of Trusts. The opened values take about as much memory again. */
export const TRUST_CHARACTERS_MAX = 16 * 1024 * 1024
const sealed = new SizedCache<SealedTrust>({ sizeMax: TRUST_CHARACTERS_MAX, entriesMax: 20_000 })

/** Returns the cached value while the project's text is unchanged, so that its secrets are not opened again. */
export function sealedTrust(ref: string, text: string): SealedTrust {
  const known = sealed.get(ref)
  if (known?.text === text) return known
  const entry = { ref, text, opened: undefined }
  sealed.set(ref, entry, text.length)
  return entry
}

/** Opens the secrets at the first call only. */
export async function openTrust(ctx: SystemCtx, trust: SealedTrust): Promise<Trust> {
  trust.opened ??= await open(ctx, trust)
  return trust.opened
}

let lastId = 0

async function open(ctx: SystemCtx, { ref, text }: SealedTrust): Promise<Trust> {
  const { sealedJwtSecret, keys, issuers, apiKeys, legacyApiKeys } = JSON.parse(text) as TrustJson
  const legacyRow = keys?.find(({ isLegacy }) => isLegacy)
  const isRevoked = legacyRow?.status === 'revoked'
  const secret = isRevoked ? undefined : secretJwk(await jwtSecretOf(ctx, { ref, sealedJwtSecret }))
  const legacy: VerificationKey | undefined = secret && { algorithm: 'HS256', kid: legacyRow?.id, jwk: secret }
  const verifying = await Promise.all((keys ?? []).map((key) => (key.isLegacy ? legacy : keyOf(ctx, ref, key))))
  return {
    id: ++lastId,
    ref,
    legacy,
    keys: new Map(verifying.flatMap((key) => (key?.kid === undefined ? [] : [[key.kid, key]]))),
    issuers: (issuers ?? []).map(({ issuer, jwks }) => ({ issuer, keys: issuerKeysIn(jwks) })),
    apiKeys: new Map((apiKeys ?? []).map(({ hash, ...key }) => [hash, key])),
    acceptsLegacyApiKeys: legacyApiKeys ?? true,
  }
}

async function keyOf(
  ctx: SystemCtx,
  ref: string,
  { id, algorithm, sealed, jwk }: SigningKeyJson,
): Promise<VerificationKey> {
  const known = sealed === null ? jwk : await openSigningKey(ctx, { ref, id }, sealed)
  if (!known) throw new Error(`the signing key ${id} has no key`)
  return { algorithm, kid: id, jwk: known }
}

/** The public keys of an issuer's JWKS; other entries are ignored. */
function issuerKeysIn(jwks: unknown): VerificationKey[] {
  const { keys } = (jwks ?? {}) as { keys?: unknown }
  return Array.isArray(keys) ? keys.flatMap(issuerKeyIn) : []
}

function issuerKeyIn(jwk: Jwk | null): VerificationKey[] {
  const algorithm = jwk && algorithmOf(jwk)
  if (!algorithm || (jwk.use !== undefined && jwk.use !== 'sig')) return []
  if (jwk.alg !== undefined && jwk.alg !== algorithm) return []
  return [{ algorithm, kid: jwk.kid, jwk }]
}

/** The algorithm that the type of the key implies; its `alg` is not read. */
export function algorithmOf({ kty, crv }: Jwk): Algorithm | undefined {
  if (kty === 'RSA') return 'RS256'
  if (kty === 'EC' && crv === 'P-256') return 'ES256'
  return kty === 'OKP' && crv === 'Ed25519' ? 'EdDSA' : undefined
}

/** Creates a Trust that accepts only the given keys. */
export const createTrust = ({ legacy, keys = new Map() }: Partial<Pick<Trust, 'legacy' | 'keys'>>): Trust => ({
  id: ++lastId,
  ref: '',
  legacy,
  keys,
  issuers: [],
  apiKeys: new Map(),
  acceptsLegacyApiKeys: true,
})

/** The public keys that a project publishes: those of its asymmetric signing keys. */
export const publicKeysOf = ({ keys }: Trust): Jwk[] =>
  Array.from(keys.values(), ({ jwk }) => jwk).filter(({ kty }) => kty !== 'oct')
