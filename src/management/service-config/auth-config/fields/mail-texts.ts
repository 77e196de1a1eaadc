interface Mail {
  subject: string
  content: string
}

const mail = (subject: string, heading: string, ...paragraphs: string[]): Mail => ({
  subject,
  content: [`<h1>${heading}</h1>`, ...paragraphs.map((paragraph) => `<p>${paragraph}</p>`)].join('\n'),
})
const link = (words: string) => `<a href="{{ .ConfirmationURL }}">${words}</a>`
const IF_NOT_YOU = 'If this was not you, get in touch with us at once.'

/** Default mails that ask the user to do something. */
export const ACTION_MAILS = {
  confirmation: mail('Confirm Your Signup', 'Welcome', `One step is left: ${link('confirm your address')}.`),
  email_change: mail(
    'Confirm Email Change',
    'A new address',
    `Your address is to change from {{ .Email }} to {{ .NewEmail }}: ${link('confirm the change')}.`,
  ),
  invite: mail(
    'You have been invited',
    'An invitation',
    `Somebody has made an account for you at {{ .SiteURL }}: ${link('accept it')}.`,
  ),
  magic_link: mail('Your Magic Link', 'Sign in', `This works once, and not for long: ${link('sign in')}.`),
  reauthentication: mail('Confirm Reauthentication', 'Is it you?', 'Enter this code: {{ .Token }}'),
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
    'The password of {{ .Email }} is a new one now.',
    IF_NOT_YOU,
  ),
  email_changed: mail(
    'Your email address has been changed',
    'Your address was changed',
    'Mail to your account goes to {{ .Email }} now, and no longer to {{ .OldEmail }}.',
    IF_NOT_YOU,
  ),
  phone_changed: mail(
    'Your phone number has been changed',
    'Your phone number was changed',
    'The phone number of {{ .Email }} is {{ .Phone }} now, and no longer {{ .OldPhone }}.',
    IF_NOT_YOU,
  ),
  mfa_factor_enrolled: mail(
    'A new MFA factor has been enrolled',
    'A factor was added',
    'Signing in as {{ .Email }} takes one more factor now: {{ .FactorType }}.',
    IF_NOT_YOU,
  ),
  mfa_factor_unenrolled: mail(
    'An MFA factor has been unenrolled',
    'A factor was removed',
    'Signing in as {{ .Email }} no longer takes this factor: {{ .FactorType }}.',
    IF_NOT_YOU,
  ),
  identity_linked: mail(
    'A new identity has been linked',
    'An identity was linked',
    'An identity at {{ .Provider }} now signs in as {{ .Email }}.',
    IF_NOT_YOU,
  ),
  identity_unlinked: mail(
    'An identity has been unlinked',
    'An identity was unlinked',
    'An identity at {{ .Provider }} no longer signs in as {{ .Email }}.',
    IF_NOT_YOU,
  ),
} as const
