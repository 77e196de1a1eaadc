import { family, flag, secretOf, text } from '../field.ts'
import { areHookSecrets, HOOK_SECRETS_FORMAT, HookUri } from '../text-forms.ts'

export const HOOK_NAMES = [
  'custom_access_token',
  'mfa_verification_attempt',
  'password_verification_attempt',
  'send_sms',
  'send_email',
  'before_user_created',
  'after_user_created',
] as const

export const HOOKS = family('hook_', HOOK_NAMES, () => ({
  enabled: flag(),
  uri: text(HookUri),
  secrets: secretOf(areHookSecrets, HOOK_SECRETS_FORMAT),
}))
