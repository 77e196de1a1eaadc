import { createServer, type ServerResponse } from 'node:http'
import { listenOnFreePort } from '../../support/listen.ts'

/** The records of a host; a host without a zone does not exist. */
export interface Zone {
  A?: readonly string[]
  AAAA?: readonly string[]
  TXT?: readonly string[]
  /** An alias before the addresses, which then belong to the alias. */
  CNAME?: string
  ttl?: number
  /** The DNS status: 2 is SERVFAIL, 3 NXDOMAIN. */
  status?: number
  /** Sent unchanged in place of an answer. */
  raw?: { status?: number; headers?: Record<string, string>; body: string }
  /** Receives the query and never answers it; `halfway` sends the beginning of an answer. */
  silent?: 'at once' | 'halfway'
  /** Closes the connection of a query of this type. */
  broken?: Type
}

export interface Doh {
  url: string
  /** May be changed at any time. */
  zones: Map<string, Zone>
  /** Every query so far, such as `A example.com`. */
  queries: string[]
  close(): Promise<void>
}

const TYPES = { A: 1, CNAME: 5, TXT: 16, AAAA: 28 }
type Type = 'A' | 'AAAA' | 'TXT'
const isType = (type: string): type is Type => ['A', 'AAAA', 'TXT'].includes(type)

/** Starts a DNS-over-HTTPS resolver on 127.0.0.1 that knows only `zones`. */
export async function startDoh(zones: Readonly<Record<string, Zone>> = {}): Promise<Doh> {
  const known = new Map(Object.entries(zones))
  const queries: string[] = []
  const server = createServer((request, response) => {
    const { searchParams } = new URL(request.url ?? '/', 'http://resolver')
    const host = searchParams.get('name') ?? ''
    const type = searchParams.get('type') ?? ''
    if (!isType(type) || request.headers.accept !== 'application/dns-json') {
      response.writeHead(400).end()
      return
    }
    queries.push(`${type} ${host}`)
    answer(response, { host, type, zone: known.get(host) })
  })
  const port = await listenOnFreePort(server)
  return {
    url: `http://127.0.0.1:${port}/dns-query`,
    zones: known,
    queries,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

interface Question {
  host: string
  type: Type
  zone: Zone | undefined
}

function answer(response: ServerResponse, { host, type, zone = { status: 3 } }: Question): void {
  if (zone.silent === 'at once') return
  if (zone.broken === type) {
    response.destroy()
    return
  }
  if (zone.raw) {
    const { status = 200, headers, body } = zone.raw
    response.writeHead(status, headers).end(body)
    return
  }
  const TTL = zone.ttl ?? 60
  const name = zone.CNAME ?? host
  const alias = zone.CNAME ? [{ name: host, type: TYPES.CNAME, TTL, data: `${zone.CNAME}.` }] : []
  const quoted = (data: string) => (type === 'TXT' ? JSON.stringify(data) : data)
  const records = (zone[type] ?? []).map((data) => ({ name, type: TYPES[type], TTL, data: quoted(data) }))
  const text = JSON.stringify({
    Status: zone.status ?? 0,
    TC: false,
    RD: true,
    RA: true,
    Question: [{ name: host, type: TYPES[type] }],
    Answer: alias.length + records.length > 0 ? [...alias, ...records] : undefined,
  })
  response.writeHead(200, { 'content-type': 'application/dns-json', 'content-length': Buffer.byteLength(text) })
  if (zone.silent === 'halfway') response.write(text.slice(0, 10))
  else response.end(text)
}
