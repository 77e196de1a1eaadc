import type { Field, Value } from './field.ts'
import { GENERAL, OAUTH_SERVER, PASSKEYS, RATE_LIMITS, SAML, SECURITY, SESSIONS } from './fields/general.ts'
import { HOOKS } from './fields/hooks.ts'
import { MAIL, SMTP } from './fields/mail.ts'
import { MFA, SMS } from './fields/phone.ts'
import { EXTERNAL } from './fields/providers.ts'

/** The whole configuration of Auth. */
export const FIELDS = {
  ...GENERAL,
  ...SECURITY,
  ...SESSIONS,
  ...RATE_LIMITS,
  ...EXTERNAL,
  ...HOOKS,
  ...MAIL,
  ...SMTP,
  ...SMS,
  ...MFA,
  ...PASSKEYS,
  ...SAML,
  ...OAUTH_SERVER,
}

export type FieldName = keyof typeof FIELDS
export type AuthConfig = {
  [Name in FieldName]: (typeof FIELDS)[Name] extends Field<infer V> ? V | null : never
}

export const FIELD_ENTRIES = Object.entries(FIELDS) as [FieldName, Field<Value>][]
