/**
 * Header of replies of deprecated endpoints (RFC 9745). The specification gives no date, so it is that of the first release with
 * these endpoints.
 */
export const DEPRECATION = { deprecation: `@${Date.UTC(2026, 10, 21) / 1000}` }
