import { ApiError } from '../../../platform/http/error.ts'
import { HOOK_NAMES } from './fields/hooks.ts'
import { MAIL_BODIES, SMTP_FIELDS } from './fields/mail.ts'
import { SMS_CREDENTIALS } from './fields/phone.ts'
import { PROVIDER_NEEDS } from './fields/providers.ts'
import type { AuthConfig, FieldName } from './fields.ts'

type Problem = readonly [FieldName, string]
type Rule = (config: AuthConfig) => Problem[]

/** Finds required fields that are not set. A secret appears as its digest, so an empty value means that it is not set. */
const requireSet = (config: AuthConfig, names: readonly FieldName[], reason: string): Problem[] =>
  names
    .filter((name) => config[name] === null || config[name] === '')
    .map((name) => [name, `must be set because ${reason}`])

interface Group {
  /** All fields that the rule reads; no other rule reads them. The field that enables the others comes first. */
  fields: readonly FieldName[]
  rule: Rule
}

/** Fields that can replace the client id. */
const ALTERNATIVES: Partial<Record<string, FieldName>> = {
  apple: 'external_apple_additional_client_ids',
  google: 'external_google_additional_client_ids',
}

const PROVIDERS = PROVIDER_NEEDS.map(({ name, secret, url }): Group => {
  const enabled = `external_${name}_enabled` as const
  const clientId = `external_${name}_client_id` as const
  const alternative = ALTERNATIVES[name]
  const others: FieldName[] = [
    ...(secret ? [`external_${name}_secret` as const] : []),
    ...(url && name === 'keycloak' ? [`external_${name}_url` as const] : []),
  ]
  return {
    fields: [enabled, clientId, ...others, ...(alternative ? [alternative] : [])],
    rule(config) {
      if (!config[enabled]) return []
      const needed = alternative && config[alternative] ? others : [clientId, ...others]
      return requireSet(config, needed, `${enabled} is true`)
    },
  }
})

const hook = (name: (typeof HOOK_NAMES)[number]): Group => {
  const enabled = `hook_${name}_enabled` as const
  const uri = `hook_${name}_uri` as const
  const secrets = `hook_${name}_secrets` as const
  return {
    fields: [enabled, uri, secrets],
    rule(config) {
      if (!config[enabled]) return []
      const isHttp = config[uri]?.startsWith('http')
      const problems = requireSet(config, [uri], `${enabled} is true`)
      return isHttp ? [...problems, ...requireSet(config, [secrets], `${uri} is called`)] : problems
    },
  }
}

const SMTP: Group = {
  fields: SMTP_FIELDS,
  rule(config) {
    const [host, ...others] = SMTP_FIELDS
    if (config.smtp_host) return requireSet(config, others, `${host} is set`)
    const set = others.find((name) => config[name])
    return set ? [[host, `must be set because ${set} is set`]] : []
  },
}

const CAPTCHA_NEEDS = ['security_captcha_provider', 'security_captcha_secret'] as const
const CAPTCHA: Group = {
  fields: ['security_captcha_enabled', ...CAPTCHA_NEEDS],
  rule: (config) =>
    config.security_captcha_enabled ? requireSet(config, CAPTCHA_NEEDS, 'security_captcha_enabled is true') : [],
}

/** A hook that sends the messages replaces a provider. */
const SMS_HOOK = hook('send_sms')
const PHONE: Group = {
  fields: ['external_phone_enabled', ...SMS_HOOK.fields, 'sms_provider', ...Object.values(SMS_CREDENTIALS).flat()],
  rule(config) {
    const { external_phone_enabled: enabled, hook_send_sms_enabled: hooked, sms_provider: provider } = config
    const problems = SMS_HOOK.rule(config)
    if (!enabled || hooked || !provider) return problems
    const reason = `external_phone_enabled is true and sms_provider is ${provider}`
    return [...problems, ...requireSet(config, SMS_CREDENTIALS[provider], reason)]
  },
}

const PASSKEY_NEEDS = ['webauthn_rp_id', 'webauthn_rp_origins'] as const
const PASSKEYS: Group = {
  fields: ['passkey_enabled', ...PASSKEY_NEEDS],
  rule: (config) => (config.passkey_enabled ? requireSet(config, PASSKEY_NEEDS, 'passkey_enabled is true') : []),
}

const POOL: Group = {
  fields: ['db_max_pool_size_unit', 'db_max_pool_size'],
  rule: ({ db_max_pool_size: size, db_max_pool_size_unit: unit }) =>
    unit === 'percent' && size !== null && size > 100
      ? [['db_max_pool_size', 'must be at most 100 because db_max_pool_size_unit is percent']]
      : [],
}

/** The maximum total length of mail templates: every read or change of the configuration loads all of them. */
const MAIL_BODIES_LENGTH_MAX = 1_000_000

const MAILS: Group = {
  fields: MAIL_BODIES,
  rule(config) {
    const lengths = MAIL_BODIES.map((name) => [name, config[name]?.length ?? 0] as const)
    const [longest] = lengths.toSorted(([, one], [, other]) => other - one)
    const total = lengths.reduce((sum, [, length]) => sum + length, 0)
    if (!longest || total <= MAIL_BODIES_LENGTH_MAX) return []
    const message = `must be shorter: all mail templates together have ${total} characters, at most ${MAIL_BODIES_LENGTH_MAX} are allowed`
    return [[longest[0], message]]
  },
}

const HOOKS = HOOK_NAMES.filter((name) => name !== 'send_sms').map(hook)

/** Rules that involve several fields. They are checked on the whole configuration after a change. */
const GROUPS: readonly Group[] = [...PROVIDERS, ...HOOKS, SMTP, CAPTCHA, PHONE, PASSKEYS, POOL, MAILS]

export function requireConsistent(config: AuthConfig): void {
  const issues = GROUPS.flatMap(({ rule }) => rule(config)).map(([name, message]) => ({
    field: `body.${name}`,
    code: 'inconsistent',
    message,
  }))
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
}

/** Returns the smallest set of `changed` fields that must keep their value from `before` to make `after` consistent. */
export const findInconsistentFields = (
  before: AuthConfig,
  after: AuthConfig,
  changed: readonly string[],
): FieldName[] =>
  GROUPS.flatMap(({ fields, rule }) => {
    const candidates = fields.filter((name) => changed.includes(name))
    const isConsistentWith = (names: readonly FieldName[]) =>
      rule({ ...after, ...Object.fromEntries(names.map((name) => [name, before[name]])) }).length === 0
    // A configuration stored before the rule existed may be inconsistent anyway: then the whole group stays unchanged.
    const choices = isConsistentWith(candidates) ? subsets(candidates) : [[]]
    for (const names of choices) if (isConsistentWith(names)) return names
    return candidates
  })

/** Yields all subsets, smaller ones first. */
function* subsets<T>(items: readonly T[]): Generator<T[]> {
  for (let size = 0; size <= items.length; size++) yield* subsetsOf(items, size)
}

function* subsetsOf<T>(items: readonly T[], size: number): Generator<T[]> {
  if (size === 0) return yield []
  for (const [index, item] of items.entries())
    for (const others of subsetsOf(items.slice(index + 1), size - 1)) yield [item, ...others]
}
