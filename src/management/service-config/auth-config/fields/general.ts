import {
  choice,
  flag,
  hours,
  INT32_MAX,
  neverNull,
  notNull,
  readOnly,
  Short,
  secret,
  text,
  unsetFlag,
  whole,
} from '../field.ts'
import { Address, HostName, List, OriginList, Tags } from '../text-forms.ts'

const perInterval = (value: number) => whole(1, INT32_MAX, value)

const LETTERS = 'abcdefghijklmnopqrstuvwxyz'
const CAPITALS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
const DIGITS = '0123456789'
const SIGNS = `!@#$%^&*()_+-=[]{};'\\\\:"|<>?,./\`~`
/** A password must contain a character of each group; colons separate the groups. */
const CHARACTER_GROUPS = [
  `${LETTERS}${CAPITALS}:${DIGITS}`,
  `${LETTERS}:${CAPITALS}:${DIGITS}`,
  `${LETTERS}:${CAPITALS}:${DIGITS}:${SIGNS}`,
  '',
] as const

export const GENERAL = {
  site_url: text(Address, 'http://localhost:3000'),
  uri_allow_list: text(List, ''),
  disable_signup: flag(),
  jwt_exp: whole(0, 604_800, 3_600),
  api_max_request_duration: whole(0, INT32_MAX, 10),
  db_max_pool_size: whole(0, INT32_MAX, 10),
  db_max_pool_size_unit: choice(['connections', 'percent'], 'connections'),
  audit_log_disable_postgres: readOnly(flag(true)),
  index_worker_ensure_user_search_indexes_exist: readOnly(flag(true)),
  refresh_token_rotation_enabled: flag(true),
}

export const SECURITY = {
  security_captcha_enabled: flag(),
  security_captcha_provider: choice(['turnstile', 'hcaptcha'], 'hcaptcha'),
  security_captcha_secret: secret(),
  security_manual_linking_enabled: flag(),
  security_refresh_token_reuse_interval: whole(0, INT32_MAX, 10),
  security_sb_forwarded_for_enabled: flag(),
  security_update_password_require_current_password: flag(),
  security_update_password_require_reauthentication: flag(),
  password_hibp_enabled: flag(),
  password_min_length: whole(6, 32_767, 6),
  password_required_characters: choice(CHARACTER_GROUPS, null),
}

export const SESSIONS = {
  sessions_inactivity_timeout: hours,
  sessions_single_per_user: flag(),
  sessions_tags: text(Tags),
  sessions_timebox: hours,
}

export const RATE_LIMITS = {
  rate_limit_anonymous_users: perInterval(30),
  rate_limit_email_sent: perInterval(2),
  rate_limit_otp: perInterval(30),
  rate_limit_sms_sent: perInterval(30),
  rate_limit_token_refresh: perInterval(150),
  rate_limit_verify: perInterval(30),
  rate_limit_web3: perInterval(30),
}

export const SAML = {
  saml_allow_encrypted_assertions: readOnly(flag()),
  saml_enabled: flag(),
  saml_external_url: text(Address),
}

export const OAUTH_SERVER = {
  custom_oauth_enabled: notNull(flag()),
  custom_oauth_max_providers: neverNull(readOnly(whole(0, INT32_MAX, 3))),
  nimbus_oauth_client_id: text(),
  nimbus_oauth_client_secret: secret(),
  nimbus_oauth_email_optional: readOnly(unsetFlag),
  oauth_server_allow_dynamic_registration: neverNull(flag()),
  oauth_server_authorization_path: text(),
  oauth_server_enabled: neverNull(flag()),
}

export const PASSKEYS = {
  passkey_enabled: notNull(flag()),
  webauthn_rp_display_name: text(Short),
  webauthn_rp_id: text(HostName),
  webauthn_rp_origins: text(OriginList),
}
