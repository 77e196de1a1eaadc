import { choice, flag, INT16_MAX, INT32_MAX, neverNull, notNull, secret, text, whole } from '../field.ts'
import { Instant, Message, TestCodes } from '../text-forms.ts'

const CODE = 'Your code is {{ .Code }}'

export const SMS = {
  sms_autoconfirm: flag(),
  sms_max_frequency: whole(0, INT16_MAX, 5),
  sms_otp_exp: whole(0, INT32_MAX, 60),
  sms_otp_length: notNull(whole(0, INT16_MAX, 6)),
  sms_provider: choice(['messagebird', 'textlocal', 'twilio', 'twilio_verify', 'vonage'], 'twilio'),
  sms_template: text(Message, CODE),
  sms_test_otp: text(TestCodes),
  sms_test_otp_valid_until: text(Instant),
  sms_messagebird_access_key: secret(),
  sms_messagebird_originator: text(),
  sms_textlocal_api_key: secret(),
  sms_textlocal_sender: text(),
  sms_twilio_account_sid: text(),
  sms_twilio_auth_token: secret(),
  sms_twilio_content_sid: text(),
  sms_twilio_message_service_sid: text(),
  sms_twilio_verify_account_sid: text(),
  sms_twilio_verify_auth_token: secret(),
  sms_twilio_verify_message_service_sid: text(),
  // Not a secret: clients compare it in plain text, and it is useless without the API secret.
  sms_vonage_api_key: text(),
  sms_vonage_api_secret: secret(),
  sms_vonage_from: text(),
}

/** The fields that each provider requires. */
export const SMS_CREDENTIALS = {
  messagebird: ['sms_messagebird_access_key', 'sms_messagebird_originator'],
  textlocal: ['sms_textlocal_api_key', 'sms_textlocal_sender'],
  twilio: ['sms_twilio_account_sid', 'sms_twilio_auth_token', 'sms_twilio_message_service_sid'],
  twilio_verify: [
    'sms_twilio_verify_account_sid',
    'sms_twilio_verify_auth_token',
    'sms_twilio_verify_message_service_sid',
  ],
  vonage: ['sms_vonage_api_key', 'sms_vonage_api_secret', 'sms_vonage_from'],
} as const

export const MFA = {
  mfa_allow_low_aal: { ...flag(), readOnly: true as const },
  mfa_max_enrolled_factors: whole(0, INT32_MAX, 10),
  mfa_phone_enroll_enabled: flag(),
  mfa_phone_max_frequency: whole(0, INT16_MAX, 5),
  mfa_phone_otp_length: neverNull(whole(0, INT16_MAX, 6)),
  mfa_phone_template: text(Message, CODE),
  mfa_phone_verify_enabled: flag(),
  mfa_totp_enroll_enabled: flag(true),
  mfa_totp_verify_enabled: flag(true),
  mfa_web_authn_enroll_enabled: flag(),
  mfa_web_authn_verify_enabled: flag(),
}
