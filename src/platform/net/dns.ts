import * as z from 'zod'
import { readText } from '../http/read-text.ts'
import { parseAddress } from './ip-addresses.ts'

export type Resolution =
  /** At least one, A and AAAA together. */
  | { kind: 'addresses'; addresses: readonly string[] }
  /** The name does not exist, has no addresses or cannot be resolved. */
  | { kind: 'nowhere'; reason: string }
  /** The resolver could not tell. */
  | { kind: 'unavailable'; reason: string }

export interface Resolver {
  resolve(host: string): Promise<Resolution>
}

export interface ResolverOptions {
  timeoutMs?: number
  now?: () => number
}

const TIMEOUT_MS = 5_000
const KEPT_SECONDS_MAX = 30
const KEPT_HOSTS_MAX = 1_000
const ANSWER_BYTES_MAX = 64 * 1024

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
const noAnswerInTime = unavailable('the resolver gave no answer in time')

/**
 * DNS-over-HTTPS in its JSON form. Addresses are kept for their TTL, 30 s at most; failures are not kept.
 * Concurrent questions for a host share one.
 */
export function createResolver(url: string, options: ResolverOptions = {}): Resolver {
  const { timeoutMs = TIMEOUT_MS, now = Date.now } = options
  const kept = new Map<string, { resolution: Resolution; until: number }>()
  const asked = new Map<string, Promise<Resolution>>()

  async function askBoth(host: string, askedAt: number): Promise<Resolution> {
    const replies = await Promise.all([
      askOne(questionUrl(url, host, 'A'), timeoutMs),
      askOne(questionUrl(url, host, 'AAAA'), timeoutMs),
    ])
    const { resolution, ttlSeconds } = combine(replies)
    const until = askedAt + Math.min(ttlSeconds, KEPT_SECONDS_MAX) * 1_000
    if (until > now()) {
      for (const oldest of kept.keys()) {
        if (kept.size < KEPT_HOSTS_MAX) break
        kept.delete(oldest)
      }
      kept.set(host, { resolution, until })
    }
    return resolution
  }

  async function resolve(host: string): Promise<Resolution> {
    const at = now()
    const known = kept.get(host)
    if (known && at < known.until) return known.resolution
    const pending = asked.get(host)
    if (pending) {
      const shared = await settledWithin(pending, timeoutMs)
      if (asked.get(host) === pending) asked.delete(host)
      return shared ?? resolve(host)
    }

    const question = askBoth(host, at)
    asked.set(host, question)
    try {
      return await question
    } finally {
      if (asked.get(host) === question) asked.delete(host)
    }
  }

  return { resolve }
}

/** Undefined when it rejects: in workerd a request that ends takes what it asked with it, whoever else waits for that. */
function settledWithin(resolution: Promise<Resolution>, timeoutMs: number): Promise<Resolution | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(noAnswerInTime), timeoutMs)
    const settle = (shared?: Resolution) => {
      clearTimeout(timer)
      resolve(shared)
    }
    resolution.then(settle, () => settle())
  })
}

/** One reply that is missing makes the whole unavailable: it could hold the forbidden address. Failures have a TTL of 0. */
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

function questionUrl(url: string, host: string, type: 'A' | 'AAAA' | 'TXT'): URL {
  const question = new URL(url)
  question.searchParams.set('name', host)
  question.searchParams.set('type', type)
  return question
}

type Answered = { kind: 'answer'; status: number; truncated: boolean; records: DnsRecord[] }
type Unavailable = Extract<Resolution, { kind: 'unavailable' }>

interface DnsRecord {
  /** Its number in DNS, such as 1 for A. */
  type: number
  TTL: number
  data: string
}

/** What there is of the type at a name now, with the aliases on the way; nothing where the name does not exist. Nothing is kept. */
export async function askRecords(
  url: string,
  name: string,
  type: 'A' | 'AAAA' | 'TXT',
): Promise<{ kind: 'records'; records: DnsRecord[] } | Unavailable> {
  const reply = await ask(questionUrl(url, name, type), TIMEOUT_MS)
  if (reply.kind === 'unavailable') return reply
  if (reply.truncated) return unreadable
  return { kind: 'records', records: reply.status === NO_ERROR ? reply.records : [] }
}

const askOne = async (question: URL, timeoutMs: number): Promise<Reply> => {
  const reply = await ask(question, timeoutMs)
  return reply.kind === 'unavailable' ? reply : toReply(reply)
}

async function ask(question: URL, timeoutMs: number): Promise<Answered | Unavailable> {
  const signal = AbortSignal.timeout(timeoutMs)
  try {
    const response = await fetch(question, {
      headers: { accept: 'application/dns-json' },
      redirect: 'manual',
      signal,
    })
    if (response.status !== 200) {
      await response.body?.cancel()
      return unavailable(`the resolver answered with HTTP status ${response.status}`)
    }
    const text = await readText(response, ANSWER_BYTES_MAX)
    return text === undefined ? tooLarge : read(text)
  } catch {
    return signal.aborted ? noAnswerInTime : unavailable('the resolver cannot be reached')
  }
}

const tooLarge: Answered = { kind: 'answer', status: NO_ERROR, truncated: true, records: [] }
const unreadable = unavailable('the answer of the resolver cannot be read')

function read(text: string): Answered | Unavailable {
  const answer = Answer.safeParse(parseJson(text))
  if (!answer.success) return unreadable
  const { Status: status, TC: truncated = false, Answer: records = [] } = answer.data
  return { kind: 'answer', status, truncated, records }
}

function toReply({ status, truncated, records }: Answered): Reply {
  if (status !== NO_ERROR && status !== NO_SUCH_NAME) {
    // The resolver works and the name's own servers do not: theirs to mend.
    return { kind: 'nowhere', reason: `cannot be resolved (DNS status ${status})` }
  }
  const addresses = records.filter(({ type }) => ADDRESS_TYPES.includes(type)).map(({ data }) => data)
  // It is the name's owner who says how many there are: as a failure of ours it would be tried for ever.
  if (truncated) return { kind: 'nowhere', reason: 'has more addresses than an answer holds' }
  if (!addresses.every(parseAddress)) return unreadable
  // The aliases on the way count too: their TTL says for how long the addresses are those of the name.
  const ttlSeconds = Math.min(...records.map(({ TTL }) => TTL))
  return { kind: 'records', addresses, ttlSeconds, nameExists: status === NO_ERROR }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
