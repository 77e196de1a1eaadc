import type { Ctx } from '../../../ctx.ts'
import type { HostnameStatus } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { fetchRecords } from '../../../platform/net/dns.ts'

/** Returns the name of the TXT record that proves ownership of a hostname. */
export const challengeName = (hostname: string): string => `_pilothouse-challenge.${hostname}`

/** Describes a TXT record that is missing or has another value. */
export const describeRecordProblem = ({ hostname, challenge }: Pick<Challenge, 'hostname' | 'challenge'>): string =>
  `the TXT record ${challengeName(hostname)} must be ${challenge}`

interface Challenge {
  hostname: string
  challenge: string
  /** The host of which the hostname must be an alias or have the addresses. */
  origin: string
}

interface Verification {
  status: HostnameStatus
  /** Missing DNS records, described for the user. */
  errors: string[]
}

/** Checks the current DNS records. An alias does not prove ownership, so it only counts together with the TXT record. */
export async function verifyHostname(ctx: Ctx, { hostname, challenge, origin }: Challenge): Promise<Verification> {
  const [texts, isAlias] = await Promise.all([readTexts(ctx, challengeName(hostname)), pointsTo(ctx, hostname, origin)])
  const isOwned = texts.includes(challenge)
  const errors = [
    ...(isOwned ? [] : [describeRecordProblem({ hostname, challenge })]),
    ...(isAlias ? [] : [`${hostname} must be an alias (CNAME) of ${origin}`]),
  ]
  if (!isOwned) return { status: '2_initiated', errors }
  return { status: isAlias ? '4_origin_setup_completed' : '3_challenge_verified', errors }
}

const TYPES = { A: 1, CNAME: 5, TXT: 16, AAAA: 28 } as const

async function queryRecords({ config }: Ctx, name: string, type: 'A' | 'AAAA' | 'TXT') {
  const reply = await fetchRecords(config.WEBHOOK_DNS_URL, name, type)
  if (reply.kind === 'unavailable') {
    throw new ApiError('service_unavailable.name_resolution', { cause: new Error(reply.reason) })
  }
  return (recordType: keyof typeof TYPES) =>
    reply.records.filter((record) => record.type === TYPES[recordType]).map(({ data }) => data)
}

/** Reads TXT records. Resolvers quote the parts of a record, which form a single text. */
async function readTexts(ctx: Ctx, name: string): Promise<string[]> {
  const records = await queryRecords(ctx, name, 'TXT')
  return records('TXT').map((data) => Array.from(data.matchAll(/"([^"]*)"/g), ([, part]) => part).join('') || data)
}

/** Whether the hostname is an alias of the origin or has only its addresses, because a zone apex cannot be an alias. */
async function pointsTo(ctx: Ctx, hostname: string, origin: string): Promise<boolean> {
  const found = await addressesOf(ctx, hostname)
  if (found.aliases.includes(origin)) return true
  if (found.addresses.length === 0) return false
  const originRecords = await addressesOf(ctx, origin)
  return found.addresses.every((address) => originRecords.addresses.includes(address))
}

async function addressesOf(ctx: Ctx, name: string) {
  const [v4, v6] = await Promise.all([queryRecords(ctx, name, 'A'), queryRecords(ctx, name, 'AAAA')])
  return {
    aliases: [...v4('CNAME'), ...v6('CNAME')].map((alias) => alias.toLowerCase().replace(/\.$/, '')),
    addresses: [...v4('A'), ...v6('AAAA')],
  }
}
