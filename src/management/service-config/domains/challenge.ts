import type { Ctx } from '../../../ctx.ts'
import type { HostnameStatus } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { askRecords } from '../../../platform/net/dns.ts'

/** Where the TXT record must be that shows whose the name is. */
export const challengeName = (hostname: string): string => `_pilothouse-challenge.${hostname}`

interface Sought {
  hostname: string
  challenge: string
  /** Which the name must be an alias of, or have the addresses of. */
  origin: string
}

interface Found {
  status: HostnameStatus
  /** What is missing, for who is to mend it. */
  errors: string[]
}

/** Looks at the records as they are now. An alias says nothing of whose a name is: without the challenge it counts for nothing. */
export async function verify(ctx: Ctx, { hostname, challenge, origin }: Sought): Promise<Found> {
  const [texts, leads] = await Promise.all([textsAt(ctx, challengeName(hostname)), leadsTo(ctx, hostname, origin)])
  const isOwn = texts.includes(challenge)
  const errors = [
    ...(isOwn ? [] : [`no TXT record at ${challengeName(hostname)} says ${challenge}`]),
    ...(leads ? [] : [`${hostname} is no alias (CNAME) of ${origin}`]),
  ]
  if (!isOwn) return { status: '2_initiated', errors }
  return { status: leads ? '4_origin_setup_completed' : '3_challenge_verified', errors }
}

const TYPES = { A: 1, CNAME: 5, TXT: 16, AAAA: 28 } as const

async function dataOf({ config }: Ctx, name: string, type: 'A' | 'AAAA' | 'TXT') {
  const reply = await askRecords(config.WEBHOOK_DNS_URL, name, type)
  if (reply.kind === 'unavailable') {
    throw new ApiError('service_unavailable.name_resolution', { cause: new Error(reply.reason) })
  }
  return (wanted: keyof typeof TYPES) =>
    reply.records.filter((record) => record.type === TYPES[wanted]).map(({ data }) => data)
}

/** A record of several parts is one text; resolvers quote the parts. */
async function textsAt(ctx: Ctx, name: string): Promise<string[]> {
  const records = await dataOf(ctx, name, 'TXT')
  return records('TXT').map((data) => Array.from(data.matchAll(/"([^"]*)"/g), ([, part]) => part).join('') || data)
}

/** By an alias on the way, or, as the head of a zone can have none, by having no other addresses than the origin. */
async function leadsTo(ctx: Ctx, hostname: string, origin: string): Promise<boolean> {
  const found = await addressesOf(ctx, hostname)
  if (found.aliases.includes(origin)) return true
  if (found.addresses.length === 0) return false
  const own = await addressesOf(ctx, origin)
  return found.addresses.every((address) => own.addresses.includes(address))
}

async function addressesOf(ctx: Ctx, name: string) {
  const [v4, v6] = await Promise.all([dataOf(ctx, name, 'A'), dataOf(ctx, name, 'AAAA')])
  return {
    aliases: [...v4('CNAME'), ...v6('CNAME')].map((alias) => alias.toLowerCase().replace(/\.$/, '')),
    addresses: [...v4('A'), ...v6('AAAA')],
  }
}
