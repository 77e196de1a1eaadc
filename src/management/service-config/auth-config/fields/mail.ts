import { family, flag, INT16_MAX, INT32_MAX, notNull, secret, text, whole } from '../field.ts'
import { Email, HostName, MailBody, Message, Port } from '../text-forms.ts'
import { LETTERS, NOTICES } from './mail-texts.ts'

const NOTICE_NAMES = Object.keys(NOTICES) as (keyof typeof NOTICES)[]
const LETTER_NAMES = Object.keys(LETTERS) as (keyof typeof LETTERS)[]

export const MAIL = {
  mailer_allow_unverified_email_sign_ins: flag(),
  mailer_autoconfirm: flag(),
  mailer_otp_exp: notNull(whole(0, INT32_MAX, 3_600)),
  mailer_otp_length: whole(6, 10, 8),
  mailer_secure_email_change_enabled: flag(true),
  ...family('mailer_subjects_', LETTER_NAMES, (name) => ({ '': text(Message, LETTERS[name].subject) })),
  ...family('mailer_templates_', LETTER_NAMES, (name) => ({ content: text(MailBody, LETTERS[name].content) })),
  ...family(
    'mailer_subjects_',
    NOTICE_NAMES,
    (name) => ({ '': text(Message, NOTICES[name].subject) }),
    '_notification',
  ),
  ...family('mailer_templates_', NOTICE_NAMES, (name) => ({
    notification_content: text(MailBody, NOTICES[name].content),
  })),
  ...family('mailer_notifications_', NOTICE_NAMES, () => ({ enabled: flag() })),
}

export const MAIL_BODIES = [
  ...LETTER_NAMES.map((name) => `mailer_templates_${name}_content` as const),
  ...NOTICE_NAMES.map((name) => `mailer_templates_${name}_notification_content` as const),
]

/** What a mail server is reached by: all of it, or none. */
export const SMTP_FIELDS = ['smtp_host', 'smtp_port', 'smtp_user', 'smtp_pass', 'smtp_admin_email'] as const

export const SMTP = {
  smtp_admin_email: text(Email),
  smtp_host: text(HostName),
  smtp_max_frequency: whole(0, INT16_MAX, 60),
  smtp_pass: secret(),
  smtp_port: text(Port),
  smtp_sender_name: text(),
  smtp_user: text(),
}
