import { createHash, createHmac } from 'node:crypto'
import type { Instance, Reply, World } from './world.ts'

/** The behaviour of a receiver for one request. */
export type Behaviour =
  | { kind: 'status'; status: number; headers?: Record<string, string>; afterMs?: number }
  /** Accepts the request and never answers. */
  | { kind: 'hang' }
  /** Answers with the headers and never ends the body. */
  | { kind: 'stall'; status: number }
  /** The connection ends, before the request was accepted or after. */
  | { kind: 'reset'; taken: boolean; afterMs: number }

/** A request that reached a receiver. */
export interface Post {
  at: number
  endpoint: string
  url: string
  messageId: string
  /** The delivery row of the request, as its sender had claimed it. */
  deliveryId: string
  claimedAt: number
  /** The start of its attempt, with the check of the destination. */
  startedAt: number
  label: string
  bodyHash: string
  body: string
  timestampSeconds: number
  /** The endpoint's secrets that signed it, in the order of their creation. */
  signedBy: number[]
  instance: Instance
  behaviour: Behaviour
}

export interface EndpointState {
  at: number
  enabled: boolean
  deleted: boolean
  secret: number
}

/** The simulation's own record of an endpoint, without the code under test. */
export interface KnownEndpoint {
  id: string
  label: string
  /** The secrets, oldest first; the last one is current. */
  secrets: string[]
  states: EndpointState[]
  behave(nth: number): Behaviour
  posts: number
}

/** A row that a sender has claimed, as the answer of its claim said. */
export interface Held {
  deliveryId: string
  claimedAt: number
  /** The start of its attempt, with the check of the destination. */
  startedAt?: number
}

export const hostOf = (label: string) => `${label}.receivers.dev`
const labelOf = (host: string) => host.split('.')[0] ?? ''
const eventIn = (body: string) => /"name":"([^"]*)"/.exec(body)?.[1] ?? ''

const BODILESS = [101, 204, 205, 304]

function responseOf({ status, headers = {} }: Behaviour & { kind: 'status' }, body: () => Promise<string>): Response {
  const stream = new ReadableStream({
    async start(controller) {
      try {
        controller.enqueue(new TextEncoder().encode(await body()))
        controller.close()
      } catch (error) {
        controller.error(error)
      }
    },
  })
  const constructible = status >= 200 && status <= 599
  const init = { status: constructible ? status : 200, headers }
  const response = new Response(BODILESS.includes(status) ? null : stream, init)
  // Servers send statuses that Response refuses.
  return constructible ? response : Object.defineProperty(response, 'status', { value: status })
}

export function createReceivers(world: World, endpoints: Map<string, KnownEndpoint>) {
  const ledger: Post[] = []

  function take(instance: Instance, url: string, init: RequestInit, held: Held | undefined): Post {
    const headers = new Headers(init.headers)
    const messageId = headers.get('webhook-id') ?? ''
    const timestamp = headers.get('webhook-timestamp') ?? ''
    const body = String(init.body)
    const endpoint = endpoints.get(labelOf(new URL(url).hostname))
    if (!endpoint) throw new Error(`no such receiver: ${url}`)
    const signatures = (headers.get('webhook-signature') ?? '').split(' ')
    const post: Post = {
      at: world.now(),
      endpoint: endpoint.label,
      url,
      messageId,
      deliveryId: held?.deliveryId ?? '',
      claimedAt: held?.claimedAt ?? 0,
      startedAt: held?.startedAt ?? 0,
      label: eventIn(body),
      bodyHash: createHash('sha256').update(body).digest('hex'),
      body,
      timestampSeconds: Number(timestamp),
      signedBy: endpoint.secrets.flatMap((secret, i) =>
        signatures.includes(`v1,${signatureOf(secret, `${messageId}.${timestamp}.${body}`)}`) ? [i] : [],
      ),
      instance,
      behaviour: endpoint.behave(endpoint.posts++),
    }
    ledger.push(post)
    world.note(`   ${endpoint.label} takes ${post.label} ${messageId.slice(-6)}: ${JSON.stringify(post.behaviour)}`)
    return post
  }

  /** Returns the behaviour of a connection that nobody accepts. */
  function refuse(url: string): Behaviour | undefined {
    const endpoint = endpoints.get(labelOf(new URL(url).hostname))
    const next = endpoint?.behave(endpoint.posts)
    if (!endpoint || next?.kind !== 'reset' || next.taken) return undefined
    endpoint.posts += 1
    return next
  }

  function post(instance: Instance, url: string, init: RequestInit, held: Held | undefined) {
    const perform = async (): Promise<Reply<Response>> => {
      const behaviour = refuse(url) ?? take(instance, url, init, held).behaviour
      if (behaviour.kind === 'hang') return { error: undefined, afterMs: Number.POSITIVE_INFINITY }
      if (behaviour.kind === 'reset') return { error: new TypeError('connection reset'), afterMs: behaviour.afterMs }
      if (behaviour.kind === 'stall') {
        return { value: new Response(new ReadableStream({}), { status: behaviour.status }) }
      }
      const body = () => world.call(instance, 'post: body', '', async () => ({ value: `answered ${behaviour.status}` }))
      const { afterMs } = behaviour
      return { value: responseOf(behaviour, body), ...(afterMs !== undefined && { afterMs }) }
    }
    // The label is not the event's id, which differs in each run of a seed.
    return world.call(instance, 'post', eventIn(String(init.body)), perform, init.signal)
  }

  return { ledger, post }
}

const signatureOf = (secret: string, text: string) =>
  createHmac('sha256', Buffer.from(secret.replace('whsec_', ''), 'base64'))
    .update(text)
    .digest('base64')
