import { randomUUID } from 'node:crypto'
import { inject } from 'vitest'
import { issueToken, openControlDatabase } from '../../dev/seed.ts'
import { hashToken, newAccessToken } from '../../src/access/token.ts'
import type { Role } from '../../src/model/roles.ts'
import type { Scope } from '../../src/model/scopes.ts'
import { accessTokens, memberRoles, oauthApps, organizations, users } from '../../src/model/tables/index.ts'
import type { Zone } from '../outbound/webhooks/doh.ts'

export const baseUrl = inject('baseUrl')
export const { db: control } = openControlDatabase(inject('controlUrl'))

// biome-ignore lint/suspicious/noExplicitAny: tests read replies whose shape is what they check
type Body = any
export interface Reply {
  status: number
  headers: Headers
  body: Body
}

interface Options {
  headers?: Record<string, string>
  /** A body that is sent unchanged, not as JSON. */
  raw?: BodyInit
}

async function send(method: string, url: URL, body?: unknown, { headers, raw }: Options = {}): Promise<Reply> {
  const response = await fetch(url, {
    method,
    headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
    body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
    redirect: 'manual',
  })
  const text = await response.text()
  // An answer to HEAD has the headers of a body that it leaves out.
  const json = text !== '' && response.headers.get('content-type')?.includes('json')
  return { status: response.status, headers: response.headers, body: json ? JSON.parse(text) : text }
}

/** Returns the API as the holder of a token calls it. */
export function as(token: string | undefined, common: Record<string, string> = {}, base: string = baseUrl) {
  const call =
    (method: string) =>
    (path: string, body?: unknown, options: Options = {}) =>
      send(method, new URL(path, base), body, {
        ...options,
        headers: { ...(token && { authorization: `Bearer ${token}` }), ...common, ...options.headers },
      })
  return {
    token,
    /** The origin of the Worker that is called. */
    base,
    get: (path: string, options: Options = {}) => call('GET')(path, undefined, options),
    post: call('POST'),
    patch: call('PATCH'),
    put: call('PUT'),
    delete: call('DELETE'),
    request: (method: string, path: string) => call(method)(path),
    send: (method: string, path: string, options: Options) => call(method)(path, undefined, options),
    /** Returns the same caller at another time: the Worker takes `at` for now. */
    at: (at: Date) => as(token, { ...common, 'x-test-clock': String(at.getTime()) }, base),
  }
}
export type Caller = ReturnType<typeof as>

/**
 * Returns a caller whose requests are a minute apart, so that a file with many of them meets no rate limit. For reads
 * only: rows would get these times.
 */
export function unhurried(caller: Caller): () => Caller {
  let minutes = 0
  return () => caller.at(new Date(Date.now() + minutes++ * 60_000))
}

export const anyone = as(undefined)

export async function newUser(): Promise<string> {
  const username = `user-${randomUUID()}`
  const primaryEmail = `${username}@example.com`
  const [user] = await control.insert(users).values({ username, primaryEmail }).returning({ id: users.id })
  if (!user) throw new Error('no user')
  return user.id
}

interface TokenFields {
  scopes?: Scope[]
  expiresAt?: Date
}

export async function tokenOf(userId: string, fields: TokenFields = {}): Promise<Caller> {
  return as(await issueToken(control, { userId, name: 'test', ...fields }))
}

/** Makes an organization, with a user who owns it. */
export async function newOrganization() {
  const userId = await newUser()
  const owner = await tokenOf(userId)
  const slug = `org-${randomUUID()}`
  const [organization] = await control
    .insert(organizations)
    .values({ slug, name: 'Test', plan: 'enterprise' })
    .returning()
  if (!organization) throw new Error('no organization')
  await addMember(organization.id, userId, 'owner')
  return { id: organization.id, slug, userId, owner }
}
export type TestOrganization = Awaited<ReturnType<typeof newOrganization>>

export async function addMember(organizationId: string, userId: string, role: Role, projectRef?: string) {
  await control.insert(memberRoles).values({ organizationId, userId, role, projectRef })
}

/** Makes another member of the organization, with a token of their own. */
export async function newMember(
  { id }: TestOrganization,
  role: Role,
  projectRef?: string,
  token: TokenFields = {},
): Promise<Caller> {
  const userId = await newUser()
  await addMember(id, userId, role, projectRef)
  return tokenOf(userId, token)
}

/** Makes an application that a user approved: an OAuth token with these scopes. */
export async function newApp({ id, userId }: TestOrganization, scopes: Scope[]) {
  const [app] = await control.insert(oauthApps).values({ organizationId: id, name: 'App' }).returning()
  if (!app) throw new Error('no application')
  const token = newAccessToken('sbp_oauth_')
  await control.insert(accessTokens).values({
    hash: await hashToken(token),
    name: 'oauth',
    userId,
    oauthAppId: app.id,
    organizationId: id,
    scopes,
  })
  return { appId: app.id, caller: as(token) }
}

const hook = async (path: string) => (await fetch(inject('hooksUrl') + path)).json()
export const tick = (at?: Date) => hook(at ? `/tick?${new URLSearchParams({ at: at.toISOString() })}` : '/tick')
/** Returns the lines that contain `part`; without it, all lines of the whole run, which are many. */
export const workerLogs = async (part = ''): Promise<string[]> =>
  (await hook(`/logs?${new URLSearchParams({ part })}`)) as string[]

/** Makes the host's name resolve to the zone from now on; requests to it arrive at `origin`. */
export const setName = (host: string, zone: Zone, origin = '') =>
  hook(`/names?${new URLSearchParams({ host, zone: JSON.stringify(zone), origin })}`)
