import * as z from 'zod'
import { BoundedMap } from '../bounded-map.ts'
import { parseJson } from '../http/parse-json.ts'
import { readText } from '../http/read-text.ts'
import { parseAddress } from './ip-addresses.ts'

export type Resolution =
  /** At least one address, A and AAAA together. */
  | { kind: 'addresses'; addresses: readonly string[] }
  /** The name does not exist, has no addresses or cannot be resolved. */
  | { kind: 'nowhere'; reason: string }
  /** The resolver failed. */
  | { kind: 'unavailable'; reason: string }

export interface Resolver {
  resolve(host: string): Promise<Resolution>
}

export interface ResolverOptions {
  timeoutMs?: number
  now?: () => number
}

const TIMEOUT_MS = 5_000
const CACHE_SECONDS_MAX = 30
const CACHE_HOSTS_MAX = 1_000
const RESPONSE_BYTES_MAX = 64 * 1024

const ADDRESS_TYPES = [1, 28]
const NO_ERROR = 0
const NO_SUCH_NAME = 3

const Answer = z.object({
  Status: z.int(),
  TC: z.boolean().optional(),
  Answer: z.array(z.object({ type: z.int(), TTL: z.number().min(0), data: z.string() })).optional(),
})

interface Records {
  kind: 'records'
  addresses: readonly string[]
  ttlSeconds: number
  nameExists: boolean
}
type Reply = Records | Exclude<Resolution, { kind: 'addresses' }>

const unavailable = (reason: string) => ({ kind: 'unavailable', reason }) as const
const timedOut = unavailable('the resolver did not respond in time')

/** Creates a resolver over DNS-over-HTTPS (JSON). Addresses are cached for their TTL, 30 s at most; failures are not cached. */
export function createResolver(url: string, options: ResolverOptions = {}): Resolver {
  const { timeoutMs = TIMEOUT_MS, now = Date.now } = options
  const cache = new BoundedMap<string, { resolution: Resolution; until: number }>(CACHE_HOSTS_MAX)

  async function resolve(host: string): Promise<Resolution> {
    const at = now()
    const known = cache.get(host)
    if (known && at < known.until) return known.resolution
    const replies = await Promise.all([
      queryAddresses(queryUrl(url, host, 'A'), timeoutMs),
      queryAddresses(queryUrl(url, host, 'AAAA'), timeoutMs),
    ])
    const { resolution, ttlSeconds } = combine(replies)
    const until = at + Math.min(ttlSeconds, CACHE_SECONDS_MAX) * 1_000
    if (until > now()) cache.set(host, { resolution, until })
    return resolution
  }

  return { resolve }
}

/** If one reply is missing, the result is unavailable: that reply could contain a forbidden address. Failures have a TTL of 0. */
function combine(replies: readonly Reply[]): { resolution: Resolution; ttlSeconds: number } {
  const records: Records[] = []
  for (const reply of replies) {
    if (reply.kind !== 'records') return { resolution: reply, ttlSeconds: 0 }
    records.push(reply)
  }
  const addresses = [...new Set(records.flatMap((reply) => reply.addresses))]
  if (addresses.length === 0) {
    const reason = records.every((reply) => reply.nameExists) ? 'has no addresses' : 'does not exist'
    return { resolution: { kind: 'nowhere', reason }, ttlSeconds: 0 }
  }
  const ttlSeconds = Math.min(...records.map((reply) => reply.ttlSeconds))
  return { resolution: { kind: 'addresses', addresses }, ttlSeconds }
}

function queryUrl(url: string, host: string, type: 'A' | 'AAAA' | 'TXT'): URL {
  const query = new URL(url)
  query.searchParams.set('name', host)
  query.searchParams.set('type', type)
  return query
}

type Answered = { kind: 'answer'; status: number; truncated: boolean; records: DnsRecord[] }
type Unavailable = Extract<Resolution, { kind: 'unavailable' }>

interface DnsRecord {
  /** Number of the record type, such as 1 for A. */
  type: number
  TTL: number
  data: string
}

/** Returns the current records of a name, including CNAMEs; none if the name does not exist. Nothing is cached. */
export async function fetchRecords(
  url: string,
  name: string,
  type: 'A' | 'AAAA' | 'TXT',
): Promise<{ kind: 'records'; records: DnsRecord[] } | Unavailable> {
  const reply = await sendQuery(queryUrl(url, name, type), TIMEOUT_MS)
  if (reply.kind === 'unavailable') return reply
  if (reply.truncated) return unreadable
  return { kind: 'records', records: reply.status === NO_ERROR ? reply.records : [] }
}

const queryAddresses = async (query: URL, timeoutMs: number): Promise<Reply> => {
  const reply = await sendQuery(query, timeoutMs)
  return reply.kind === 'unavailable' ? reply : toReply(reply)
}

async function sendQuery(query: URL, timeoutMs: number): Promise<Answered | Unavailable> {
  const signal = AbortSignal.timeout(timeoutMs)
  try {
    const response = await fetch(query, {
      headers: { accept: 'application/dns-json' },
      redirect: 'manual',
      signal,
    })
    if (response.status !== 200) {
      await response.body?.cancel()
      return unavailable(`the resolver responded with HTTP status ${response.status}`)
    }
    const text = await readText(response, RESPONSE_BYTES_MAX)
    return text === undefined ? tooLarge : read(text)
  } catch {
    return signal.aborted ? timedOut : unavailable('the resolver cannot be reached')
  }
}

const tooLarge: Answered = { kind: 'answer', status: NO_ERROR, truncated: true, records: [] }
const unreadable = unavailable('the response of the resolver is invalid')

function read(text: string): Answered | Unavailable {
  const answer = Answer.safeParse(parseJson(text))
  if (!answer.success) return unreadable
  const { Status: status, TC: truncated = false, Answer: records = [] } = answer.data
  return { kind: 'answer', status, truncated, records }
}

function toReply({ status, truncated, records }: Answered): Reply {
  if (status !== NO_ERROR && status !== NO_SUCH_NAME) {
    // The resolver works, but the name servers of the domain do not: the owner of the domain must fix it.
    return { kind: 'nowhere', reason: `cannot be resolved (DNS status ${status})` }
  }
  const addresses = records.filter(({ type }) => ADDRESS_TYPES.includes(type)).map(({ data }) => data)
  // The owner of the domain decides how many addresses there are. As `unavailable` the name would be retried forever.
  if (truncated) return { kind: 'nowhere', reason: 'has too many addresses' }
  if (!addresses.every(parseAddress)) return unreadable
  // The TTLs of CNAMEs count too, as they limit how long the addresses are those of the name.
  const ttlSeconds = Math.min(...records.map(({ TTL }) => TTL))
  return { kind: 'records', addresses, ttlSeconds, nameExists: status === NO_ERROR }
}
