import { ApiError } from '../../http/error.ts'
import { HOOK_NAMES } from './fields/hooks.ts'
import { MAIL_BODIES, SMTP_FIELDS } from './fields/mail.ts'
import { SMS_CREDENTIALS } from './fields/phone.ts'
import { PROVIDER_NEEDS } from './fields/providers.ts'
import type { AuthConfig, FieldName } from './fields.ts'

type Problem = readonly [FieldName, string]
type Rule = (config: AuthConfig) => Problem[]

/** Secrets are there as their digests, so that what is empty is not set. */
const missing = (config: AuthConfig, names: readonly FieldName[], because: string): Problem[] =>
  names
    .filter((name) => config[name] === null || config[name] === '')
    .map((name) => [name, `must be set, as ${because}`])

const providers: Rule = (config) =>
  PROVIDER_NEEDS.flatMap(({ name, secret, url }) => {
    const enabled = `external_${name}_enabled` as const
    if (!config[enabled]) return []
    const alternatives: Partial<Record<string, string | null>> = {
      apple: config.external_apple_additional_client_ids,
      google: config.external_google_additional_client_ids,
    }
    const needed: FieldName[] = [
      ...(alternatives[name] ? [] : [`external_${name}_client_id` as const]),
      ...(secret ? [`external_${name}_secret` as const] : []),
      ...(url && name === 'keycloak' ? [`external_${name}_url` as const] : []),
    ]
    return missing(config, needed, `${enabled} is true`)
  })

const hooks: Rule = (config) =>
  HOOK_NAMES.flatMap((name) => {
    const enabled = `hook_${name}_enabled` as const
    const uri = `hook_${name}_uri` as const
    if (!config[enabled]) return []
    const called = config[uri]?.startsWith('http')
    const problems = missing(config, [uri], `${enabled} is true`)
    return called ? [...problems, ...missing(config, [`hook_${name}_secrets`], `${uri} is called`)] : problems
  })

const smtp: Rule = (config) => {
  const [host, ...others] = SMTP_FIELDS
  if (config.smtp_host) return missing(config, others, `${host} is set`)
  const set = others.find((name) => config[name])
  return set ? [[host, `must be set, as ${set} is`]] : []
}

const captcha: Rule = (config) =>
  config.security_captcha_enabled
    ? missing(config, ['security_captcha_provider', 'security_captcha_secret'], 'security_captcha_enabled is true')
    : []

/** A hook that sends the messages stands for a provider. */
const phone: Rule = (config) => {
  const { external_phone_enabled: enabled, hook_send_sms_enabled: hooked, sms_provider: provider } = config
  if (!enabled || hooked || !provider) return []
  return missing(config, SMS_CREDENTIALS[provider], `external_phone_enabled is true and sms_provider is ${provider}`)
}

const passkeys: Rule = (config) =>
  config.passkey_enabled ? missing(config, ['webauthn_rp_id', 'webauthn_rp_origins'], 'passkey_enabled is true') : []

const pool: Rule = ({ db_max_pool_size: size, db_max_pool_size_unit: unit }) =>
  unit === 'percent' && size !== null && size > 100
    ? [['db_max_pool_size', 'must be at most 100, as db_max_pool_size_unit is percent']]
    : []

/** Whoever reads or changes the configuration has all of them at hand. */
const MAIL_BODIES_LENGTH_MAX = 1_000_000

const mailBodies: Rule = (config) => {
  const lengths = MAIL_BODIES.map((name) => [name, config[name]?.length ?? 0] as const)
  const [longest] = lengths.toSorted(([, one], [, other]) => other - one)
  const together = lengths.reduce((sum, [, length]) => sum + length, 0)
  if (!longest || together <= MAIL_BODIES_LENGTH_MAX) return []
  const message = `must be shorter: the templates of all mails have ${together} characters together, and may have ${MAIL_BODIES_LENGTH_MAX}`
  return [[longest[0], message]]
}

const RULES: readonly Rule[] = [providers, hooks, smtp, captcha, phone, passkeys, pool, mailBodies]

/** What no field says of itself: judged on the whole configuration as it would be. */
const problemsOf = (config: AuthConfig): Problem[] => RULES.flatMap((rule) => rule(config))

export const isConsistent = (config: AuthConfig): boolean => problemsOf(config).length === 0

export function requireConsistent(config: AuthConfig): void {
  const issues = problemsOf(config).map(([name, message]) => ({ field: `body.${name}`, code: 'inconsistent', message }))
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
}
