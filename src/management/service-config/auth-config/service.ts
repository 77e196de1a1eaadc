import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import { type Reader, readSettings } from '../../projects/settings/read-settings.ts'
import { changedFields } from '../../projects/settings/setting-areas.ts'
import { requireConsistent } from './consistency.ts'
import { type Field, isDigest, type Value } from './field.ts'
import { SMTP_FIELDS } from './fields/mail.ts'
import { type AuthConfig, FIELDS, type FieldName } from './fields.ts'
import type { AuthConfigUpdate } from './schema.ts'
import { digestsOf, type Kept, keepSecret, rememberedDigests, toAuthConfig } from './stored-config.ts'

/** What holds for a project, defaults included; secrets are digests. */
export async function getAuthConfig({ db }: { db: Reader }, ref: string): Promise<AuthConfig> {
  return toAuthConfig((await readSettings(db, ref, 'auth')).value)
}

type Change = readonly [FieldName, Value | null]

/** What was changed by somebody else in the meantime is merged with. */
export async function updateAuthConfig(ctx: Ctx, { ref, parentRef }: ProjectAccess, body: AuthConfigUpdate) {
  const changes = withoutMailServer(body)
  const [secrets, parent] = await Promise.all([sealedOf(ctx, ref, changes), parentOf(ctx, parentRef, changes)])
  const kept = await changeSettings(ctx, {
    ref,
    area: 'auth',
    work: async (before) => {
      const after = merge(before, withoutDigests(before, parent, changes), secrets)
      requireConsistent(toAuthConfig(after))
      return changedFields('auth', before, after).length > 0 ? after : undefined
    },
  })
  return toAuthConfig(kept)
}

/** An empty host takes the whole mail server away: clients send nothing else for it. */
function withoutMailServer(body: AuthConfigUpdate): Change[] {
  const gone = body.smtp_host === '' || body.smtp_host === null
  const cleared = gone ? [...SMTP_FIELDS, 'smtp_sender_name' as const].map((name) => [name, null] as const) : []
  const named = Object.entries(body).filter(([name, value]) => value !== undefined && !(gone && name === 'smtp_host'))
  return [...cleared, ...(named as [FieldName, Value | null][])]
}

type Secrets = Map<string, Kept['secrets'][string]>

async function sealedOf(ctx: Ctx, ref: string, changes: Change[]): Promise<Secrets> {
  const given = changes.filter(([name, value]) => isSecret(name) && value)
  return new Map(
    await Promise.all(
      given.map(async ([name, value]) => [name, await keepSecret(ctx, ref, name, String(value))] as const),
    ),
  )
}

const isSecret = (name: FieldName): boolean => 'secret' in FIELDS[name]

/** Whoever copies a branch's settings from its parent sends the parent's digests. */
const parentOf = async ({ db }: Ctx, parentRef: string | null, changes: Change[]): Promise<Kept | undefined> =>
  parentRef && changes.some(([name, value]) => isSecret(name) && isDigest(value))
    ? (await readSettings(db, parentRef, 'auth')).value
    : undefined

/** A digest stands for the secret itself, also one that was told before the secret was changed. */
function withoutDigests(before: Kept, parent: Kept | undefined, changes: Change[]): Change[] {
  const isKnown = ([name, value]: Change) =>
    [before, ...(parent ? [parent] : [])].some((kept) => digestsOf(kept, name).includes(String(value)))
  const others = changes.filter((change) => !(isSecret(change[0]) && isDigest(change[1]) && isKnown(change)))
  const issues = others.flatMap(([name, value]) => {
    const { form }: Field = FIELDS[name]
    return form && isDigest(value) ? [{ field: `body.${name}`, code: 'unknown_digest', message: form }] : []
  })
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
  return others
}

/** What a field already is, is not written again: a configuration that was read and is sent back changes nothing. */
function merge(before: Kept, changes: Change[], sealed: Secrets): Kept {
  const known = toAuthConfig(before)
  const values = { ...before.values }
  const secrets = { ...before.secrets }
  const changed = changes.filter(([name, value]) => (sealed.get(name)?.digest ?? value) !== known[name])
  for (const [name, value] of changed) {
    const secret = sealed.get(name)
    delete values[name]
    delete secrets[name]
    if (secret) secrets[name] = secret
    else if (value !== null && !isSecret(name)) values[name] = value
  }
  const digests = rememberedDigests(
    before,
    changed.map(([name]) => name),
  )
  return { values, secrets, digests }
}
