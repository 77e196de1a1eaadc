/**
 * Creates the Content Security Policy of a page whose only style or script has the nonce. It has no form-action, because browsers
 * apply that to every redirect after the form, including those to and by the application.
 */
export const pagePolicy = (directive: 'style-src' | 'script-src', nonce: string): string =>
  `default-src 'none'; ${directive} 'nonce-${nonce}'; base-uri 'none'; frame-ancestors 'none'`
