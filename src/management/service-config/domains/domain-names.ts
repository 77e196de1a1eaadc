import * as z from 'zod'
import { REF } from '../../../platform/identifiers.ts'

/** A label of RFC 1123; names are case-insensitive. */
const LABEL = /^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/
/** Labels reserved by RFC 5891, § 4.2.3.1. */
const ENCODED = /^..--/

export const VanitySubdomain = z
  .string()
  .max(63)
  .toLowerCase()
  .regex(LABEL, 'must consist of letters, digits and hyphens, and must not start or end with a hyphen')
  .refine((name) => !ENCODED.test(name), 'must not have hyphens as its third and fourth characters')
  .meta({ id: 'VanitySubdomain', example: 'acme' })

/** Names that users expect to belong to the installation, or that mail and browsers use. */
const RESERVED = new Set(
  (
    'abuse account accounts admin administrator api app apps assets auth autoconfig autodiscover billing blog cdn console dashboard db ' +
    'dns docs email ftp help host hostmaster imap info internal isatap localhost login mail mta mx news noc ns ns1 ns2 pop pop3 ' +
    'postmaster proxy root security signup smtp ssl sso static status storage studio support system test vpn webmail webmaster wpad www'
  ).split(' '),
)

/** Describes why a subdomain is not allowed; undefined if it is. `ownHost` is the host of the management API. */
export function problemOf(subdomain: string, { host, ownHost }: { host: string; ownHost: string }): string | undefined {
  if (RESERVED.has(subdomain) || host === ownHost) return `${subdomain} is reserved`
  if (REF.test(subdomain)) return 'names in the format of project refs are reserved'
  return undefined
}

const HOSTNAME_LENGTH_MAX = 253
/** A label of a hostname; internationalized names must be in ASCII form. */
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
