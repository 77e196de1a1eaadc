import { family, flag, INT16_MAX, INT32_MAX, notNull, secret, text, whole } from '../field.ts'
import { Email, HostName, MailBody, Message, Port } from '../text-forms.ts'
import { ACTION_MAILS, NOTIFICATION_MAILS } from './mail-texts.ts'

const NOTIFICATION_NAMES = Object.keys(NOTIFICATION_MAILS) as (keyof typeof NOTIFICATION_MAILS)[]
const ACTION_NAMES = Object.keys(ACTION_MAILS) as (keyof typeof ACTION_MAILS)[]

export const MAIL = {
  mailer_allow_unverified_email_sign_ins: flag(),
  mailer_autoconfirm: flag(),
  mailer_otp_exp: notNull(whole(0, INT32_MAX, 3_600)),
  mailer_otp_length: whole(6, 10, 8),
  mailer_secure_email_change_enabled: flag(true),
  ...family('mailer_subjects_', ACTION_NAMES, (name) => ({ '': text(Message, ACTION_MAILS[name].subject) })),
  ...family('mailer_templates_', ACTION_NAMES, (name) => ({ content: text(MailBody, ACTION_MAILS[name].content) })),
  ...family(
    'mailer_subjects_',
    NOTIFICATION_NAMES,
    (name) => ({ '': text(Message, NOTIFICATION_MAILS[name].subject) }),
    '_notification',
  ),
  ...family('mailer_templates_', NOTIFICATION_NAMES, (name) => ({
    notification_content: text(MailBody, NOTIFICATION_MAILS[name].content),
  })),
  ...family('mailer_notifications_', NOTIFICATION_NAMES, () => ({ enabled: flag() })),
}

export const MAIL_BODIES = [
  ...ACTION_NAMES.map((name) => `mailer_templates_${name}_content` as const),
  ...NOTIFICATION_NAMES.map((name) => `mailer_templates_${name}_notification_content` as const),
]

/** The connection fields of the mail server: all must be set, or none. */
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
