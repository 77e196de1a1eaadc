interface Mail {
  subject: string
  content: string
}

const mail = (subject: string, heading: string, ...paragraphs: string[]): Mail => ({
  subject,
  content: [`<h1>${heading}</h1>`, ...paragraphs.map((paragraph) => `<p>${paragraph}</p>`)].join('\n'),
})
const link = (words: string) => `<a href="{{ .ConfirmationURL }}">${words}</a>`
const IF_NOT_YOU = 'If this was not you, contact us immediately.'

/** Default mails that ask the user to do something. */
export const ACTION_MAILS = {
  confirmation: mail('Confirm Your Signup', 'Welcome', `To finish the signup, ${link('confirm your address')}.`),
  email_change: mail(
    'Confirm Email Change',
    'A new address',
    `You asked to change your address from {{ .Email }} to {{ .NewEmail }}: ${link('confirm the change')}.`,
  ),
  invite: mail(
    'You have been invited',
    'An invitation',
    `You have been invited to create an account at {{ .SiteURL }}: ${link('accept the invitation')}.`,
  ),
  magic_link: mail('Your Magic Link', 'Sign in', `This link works once and expires soon: ${link('sign in')}.`),
  reauthentication: mail('Confirm Reauthentication', 'Confirm that it is you', 'Enter this code: {{ .Token }}'),
  recovery: mail(
    'Reset Your Password',
    'A new password',
    `You asked to choose a new password: ${link('choose it now')}.`,
  ),
} as const

/** Default mails that notify the user of a change. */
export const NOTIFICATION_MAILS = {
  password_changed: mail(
    'Your password has been changed',
    'Your password was changed',
    'The password of {{ .Email }} was changed.',
    IF_NOT_YOU,
  ),
  email_changed: mail(
    'Your email address has been changed',
    'Your address was changed',
    'The address of your account was changed from {{ .OldEmail }} to {{ .Email }}.',
    IF_NOT_YOU,
  ),
  phone_changed: mail(
    'Your phone number has been changed',
    'Your phone number was changed',
    'The phone number of {{ .Email }} was changed from {{ .OldPhone }} to {{ .Phone }}.',
    IF_NOT_YOU,
  ),
  mfa_factor_enrolled: mail(
    'A new MFA factor has been enrolled',
    'A factor was added',
    'A factor was added to the account {{ .Email }}: {{ .FactorType }}.',
    IF_NOT_YOU,
  ),
  mfa_factor_unenrolled: mail(
    'An MFA factor has been unenrolled',
    'A factor was removed',
    'A factor was removed from the account {{ .Email }}: {{ .FactorType }}.',
    IF_NOT_YOU,
  ),
  identity_linked: mail(
    'A new identity has been linked',
    'An identity was linked',
    'An identity of {{ .Provider }} was linked to the account {{ .Email }}.',
    IF_NOT_YOU,
  ),
  identity_unlinked: mail(
    'An identity has been unlinked',
    'An identity was unlinked',
    'An identity of {{ .Provider }} was unlinked from the account {{ .Email }}.',
    IF_NOT_YOU,
  ),
} as const
