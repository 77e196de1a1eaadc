import * as z from 'zod'

/** RFC 1123, in either case, which names do not know. */
const LABEL = /^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/
/** Reserved (RFC 5891, § 4.2.3.1). */
const ENCODED = /^..--/

export const VanitySubdomain = z
  .string()
  .max(63)
  .toLowerCase()
  .regex(LABEL, 'must be letters, digits and hyphens, and neither begin nor end with a hyphen')
  .refine((name) => !ENCODED.test(name), 'must not have hyphens as its third and fourth character')
  .meta({ id: 'VanitySubdomain', example: 'acme' })

/** What is expected to be the installation's own below its domain, or what mail and browsers go by. */
const RESERVED = new Set(
  (
    'abuse account accounts admin administrator api app apps assets auth autoconfig autodiscover billing blog cdn console dashboard db ' +
    'dns docs email ftp help host hostmaster imap info internal isatap localhost login mail mta mx news noc ns ns1 ns2 pop pop3 ' +
    'postmaster proxy root security signup smtp ssl sso static status storage studio support system test vpn webmail webmaster wpad www'
  ).split(' '),
)

const REF = /^[a-z]{20}$/

/** Why no project can have the name; undefined for one that may be free. `ownHost`: the management API's. */
export function problemOf(subdomain: string, { host, ownHost }: { host: string; ownHost: string }): string | undefined {
  if (RESERVED.has(subdomain) || host === ownHost) return `${subdomain} is reserved`
  if (REF.test(subdomain)) return 'what looks like the ref of a project is reserved'
  return undefined
}

const HOSTNAME_LENGTH_MAX = 253
/** An internationalized name comes in its ASCII form. */
const HOST_LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/

const isHostname = (hostname: string): boolean => {
  const labels = hostname.split('.')
  return labels.length > 1 && labels.every((label) => HOST_LABEL.test(label)) && !/^\d+$/.test(labels.at(-1) ?? '')
}

export const Hostname = z
  .string()
  .min(1)
  .max(HOSTNAME_LENGTH_MAX)
  .toLowerCase()
  .refine(isHostname, 'must be a host name such as api.example.com')
  .meta({ id: 'CustomHostname', example: 'api.example.com' })
