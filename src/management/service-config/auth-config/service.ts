import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { type Reader, readSettings } from '../../projects/settings/read-settings.ts'
import { requireConsistent } from './consistency.ts'
import { type Field, isDigest, type Value } from './field.ts'
import { SMTP_FIELDS } from './fields/mail.ts'
import { type AuthConfig, FIELDS, type FieldName } from './fields.ts'
import type { AuthConfigUpdate } from './schema.ts'
import { collectDigests, digestsOf, type StoredAuthConfig, sealSecret, toAuthConfig } from './stored-config.ts'

/** Returns the Auth settings of a project, including defaults, with digests instead of secrets. */
export async function getAuthConfig({ db }: { db: Reader }, ref: string): Promise<AuthConfig> {
  return toAuthConfig((await readSettings(db, ref, 'auth')).value)
}

type Change = readonly [FieldName, Value | null]

/** Updates the settings. The changes are merged into the current settings, so that concurrent changes are kept. */
export async function updateAuthConfig(ctx: Ctx, project: ProjectAccess, body: AuthConfigUpdate) {
  const { ref, parentRef } = project
  const changes = expandMailServerRemoval(body)
  const [secrets, parent] = await Promise.all([sealSecrets(ctx, ref, changes), readParent(ctx, parentRef, changes)])
  const stored = await changeSettings(ctx, {
    project,
    area: 'auth',
    work: async (before) => {
      const after = merge(before, withoutDigests(before, parent, changes), secrets)
      requireConsistent(toAuthConfig(after))
      return after
    },
  })
  return toAuthConfig(stored)
}

/** Expands an empty `smtp_host` to the removal of all mail server fields, because clients send only the empty host. */
function expandMailServerRemoval(body: AuthConfigUpdate): Change[] {
  const isRemoved = body.smtp_host === '' || body.smtp_host === null
  const cleared = isRemoved ? [...SMTP_FIELDS, 'smtp_sender_name' as const].map((name) => [name, null] as const) : []
  const others = Object.entries(body).filter(
    ([name, value]) => value !== undefined && !(isRemoved && name === 'smtp_host'),
  )
  return [...cleared, ...(others as [FieldName, Value | null][])]
}

type Secrets = Map<string, StoredAuthConfig['secrets'][string]>

async function sealSecrets(ctx: Ctx, ref: string, changes: Change[]): Promise<Secrets> {
  const secrets = changes.filter(([name, value]) => isSecret(name) && value)
  return new Map(
    await Promise.all(
      secrets.map(async ([name, value]) => [name, await sealSecret(ctx, ref, name, String(value))] as const),
    ),
  )
}

const isSecret = (name: FieldName): boolean => 'secret' in FIELDS[name]

/** Reads the parent's settings if needed: clients that copy settings to a branch send the parent's digests. */
const readParent = async (
  { db }: Ctx,
  parentRef: string | null,
  changes: Change[],
): Promise<StoredAuthConfig | undefined> =>
  parentRef && changes.some(([name, value]) => isSecret(name) && isDigest(value))
    ? (await readSettings(db, parentRef, 'auth')).value
    : undefined

/** Drops changes whose value is a current or earlier digest of the secret: such a value means the current secret. */
function withoutDigests(before: StoredAuthConfig, parent: StoredAuthConfig | undefined, changes: Change[]): Change[] {
  const isKnown = ([name, value]: Change) =>
    [before, ...(parent ? [parent] : [])].some((stored) => digestsOf(stored, name).includes(String(value)))
  const others = changes.filter((change) => !(isSecret(change[0]) && isDigest(change[1]) && isKnown(change)))
  const issues = others.flatMap(([name, value]) => {
    const { format }: Field = FIELDS[name]
    return format && isDigest(value) ? [{ field: `body.${name}`, code: 'unknown_digest', message: format }] : []
  })
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
  return others
}

/** Applies the changes without rewriting equal values: sending back a configuration changes nothing. */
function merge(before: StoredAuthConfig, changes: Change[], sealed: Secrets): StoredAuthConfig {
  const current = toAuthConfig(before)
  const values = { ...before.values }
  const secrets = { ...before.secrets }
  const changed = changes.filter(([name, value]) => (sealed.get(name)?.digest ?? value) !== current[name])
  for (const [name, value] of changed) {
    const secret = sealed.get(name)
    delete values[name]
    delete secrets[name]
    if (secret) secrets[name] = secret
    else if (value !== null && !isSecret(name)) values[name] = value
  }
  const digests = collectDigests(
    before,
    changed.map(([name]) => name),
  )
  return { values, secrets, digests }
}
