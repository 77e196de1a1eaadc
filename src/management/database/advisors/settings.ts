import type { ProjectEngine } from '../../../engine/engine.ts'
import type { AuthConfig } from '../../service-config/auth-config/fields.ts'
import type { SettingLint } from './lints.ts'

export interface SettingFacts {
  auth: AuthConfig
  sslRequired: boolean
  /** True if the database accepts connections from any network. */
  acceptsAnyNetwork: boolean
  /** The number of members who may administer the whole organization. */
  administrators: number
  engine: Pick<ProjectEngine, 'name' | 'pointInTime' | 'capabilities'>
}

const OTP_SECONDS_MAX = 3_600
const OTP_DIGITS_MIN = 6
const PASSWORD_CHARACTERS_MIN = 8
const FACTORS_MIN = 2

/** Each check describes the problem, or returns undefined if there is none. */
export const settingChecks: Record<SettingLint, (facts: SettingFacts) => string | undefined> = {
  auth_otp_long_expiry: ({ auth }) =>
    describeAll(
      limits(auth, 'mailer_otp_exp', 'sms_otp_exp').filter(([, seconds]) => seconds > OTP_SECONDS_MAX),
      (field, seconds) => `${field} is ${seconds} seconds, more than ${OTP_SECONDS_MAX}.`,
    ),
  auth_otp_short_length: ({ auth }) =>
    describeAll(
      [
        ...limits(auth, 'mailer_otp_length', 'sms_otp_length'),
        ...(auth.mfa_phone_verify_enabled ? [limit(auth, 'mfa_phone_otp_length')] : []),
      ].filter(([, digits]) => digits < OTP_DIGITS_MIN),
      (field, digits) => `${field} is ${digits}, less than ${OTP_DIGITS_MIN}.`,
    ),
  ssl_not_enforced: ({ sslRequired }) =>
    sslRequired ? undefined : 'The database accepts connections without SSL: SSL enforcement is off.',
  network_restrictions_not_set: ({ acceptsAnyNetwork, engine }) =>
    engine.capabilities.loginNetworks && acceptsAnyNetwork
      ? 'The database accepts connections from any address.'
      : undefined,
  password_requirements_min_length: ({ auth }) => {
    const characters = auth.password_min_length ?? 0
    if (!acceptsPasswords(auth) || characters >= PASSWORD_CHARACTERS_MIN) return undefined
    return `password_min_length is ${characters}, less than ${PASSWORD_CHARACTERS_MIN}.`
  },
  pitr_not_enabled: ({ engine }) =>
    engine.pointInTime ? undefined : `The driver ${engine.name} has no point-in-time recovery.`,
  auth_leaked_password_protection: ({ auth }) =>
    acceptsPasswords(auth) && !auth.password_hibp_enabled ? 'password_hibp_enabled is false.' : undefined,
  auth_insufficient_mfa_options: ({ auth }) => {
    const factors = FACTORS.filter((name) => auth[`mfa_${name}_enroll_enabled`] && auth[`mfa_${name}_verify_enabled`])
    if (factors.length >= FACTORS_MIN) return undefined
    return `Second factors that can be enrolled and verified: ${factors.join(', ') || 'none'} (of totp, phone and web_authn).`
  },
  auth_password_policy_missing: ({ auth }) =>
    acceptsPasswords(auth) && !auth.password_required_characters ? 'password_required_characters is empty.' : undefined,
  no_backup_admin: ({ administrators }) =>
    administrators > 1 ? undefined : 'The organization has only one owner or administrator.',
}

const FACTORS = ['totp', 'phone', 'web_authn'] as const

const acceptsPasswords = (auth: AuthConfig) => auth.external_email_enabled || auth.external_phone_enabled

type Limit = 'mailer_otp_exp' | 'mailer_otp_length' | 'sms_otp_exp' | 'sms_otp_length' | 'mfa_phone_otp_length'

const limit = (auth: AuthConfig, name: Limit) => [name, auth[name] ?? 0] as const

/** The limits of the enabled channels for one-time passwords. */
const limits = (auth: AuthConfig, mailer: Limit, sms: Limit) => [
  ...(auth.external_email_enabled ? [limit(auth, mailer)] : []),
  ...(auth.external_phone_enabled ? [limit(auth, sms)] : []),
]

const describeAll = (
  found: readonly (readonly [string, number])[],
  describe: (field: string, value: number) => string,
) => (found.length > 0 ? found.map(([field, value]) => describe(field, value)).join(' ') : undefined)
