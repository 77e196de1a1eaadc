import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import type * as z from 'zod'
import { routes } from '../../src/api.ts'
import { isBufferedBody } from '../../src/management/kernel/body.ts'
import { changesProject, isOptional, type Route, scopeOf } from '../../src/management/kernel/route.ts'
import { ROLES, type Role, roleAllows } from '../../src/model/roles.ts'
import { SCOPES } from '../../src/model/scopes.ts'
import { organizations, users } from '../../src/model/tables/index.ts'
import {
  addMember,
  as,
  type Caller,
  control,
  newMember,
  newOrganization,
  newUser,
  type Reply,
  type TestOrganization,
  tokenOf,
  unhurried,
} from '../support/api.ts'
import { createBranch } from '../support/branches.ts'
import { newProject } from '../support/projects.ts'
import { insertProject } from '../support/webhooks.ts'

/** Rate limits count by address or user: a fresh one for each test keeps tests out of each other's quota. */
const stranger = () => as(undefined, { 'x-test-address': `test-${randomUUID()}` })

interface Target {
  slug: string
  ref: string
  branch: string
}

const fill = (route: Route, { slug, ref, branch }: Target) =>
  route.path
    .replace('{slug}', slug)
    .replace('{ref}', ref)
    .replace('{branch_id_or_ref}', branch)
    .replace('{id}', '00000000-0000-7000-8000-000000000000')
    .replace('{user_id}', '00000000-0000-7000-8000-000000000000')
    .replace(/{(provider|tpa)_id}/, '00000000-0000-4000-8000-000000000000')
    .replace('{aws_account_id}', '123456789012')
    .replace('{version}', '20260102030405')
    .replace(/\{\w+\}/g, 'x')

/** Fields that most bodies need beside the field under test. */
const VALID = { name: 'n', query: 'select 1', db_pass: 'password', organization_slug: 'nobody', password: 'password' }

/** Expects the text in a reply; a reply to HEAD has no body. */
const expectText = ({ method }: Route, { body }: Reply, text: string) =>
  expect(JSON.stringify(body)).toContain(method === 'HEAD' ? '' : text)

const LIMIT_HEADERS = ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']

const secured = routes.filter(({ scope }) => scope !== 'public')
const scoped = secured.filter((route) => scopeOf(route) !== undefined)
const ofResource = secured.filter(({ path }) => /\{(ref|slug|branch_id_or_ref)\}/.test(path))

let organization: TestOrganization
let target: Target
let going: string
beforeAll(async () => {
  organization = await newOrganization()
  const ref = await newProject(organization)
  const { id: branch } = await createBranch(organization.owner, ref)
  target = { slug: organization.slug, ref, branch }
  going = await insertProject(organization, { status: 'GOING_DOWN' })
})

/** An organization that the operator has disabled, with its resources. */
let disabled: Target
let formerOwner: () => Caller
beforeAll(async () => {
  const { id, slug, owner } = await newOrganization()
  const ref = await insertProject({ id })
  const { id: branch } = await createBranch(owner, ref, { is_default: true })
  await control.update(organizations).set({ disabledAt: new Date() }).where(eq(organizations.id, id))
  disabled = { slug, ref, branch }
  formerOwner = unhurried(owner)
})

const callers = new Map<string, () => Caller>()
/** Returns one caller for all tests of the same name, created at first use; their requests are a minute apart. */
async function shared(name: string, make: () => Promise<Caller>): Promise<Caller> {
  const caller = callers.get(name) ?? unhurried(await make())
  callers.set(name, caller)
  return caller()
}
const ofRole = (role: Role) => shared(role, () => newMember(organization, role))
const outsider = () => shared('outsider', async () => tokenOf(await newUser()))

describe.each(secured)('$method $path', (route) => {
  it('answers 401 without a token', async () => {
    const reply = await stranger().request(route.method, fill(route, target))
    expect(reply.status).toBe(401)
    expect(LIMIT_HEADERS.filter((name) => !/^\d+$/.test(reply.headers.get(name) ?? ''))).toEqual([])
  })
})

describe.each(secured)('$method $path', (route) => {
  it('answers 403 to a user whom the operator has disabled', async () => {
    const caller = await shared('disabled', async () => {
      const id = await newUser()
      await control.update(users).set({ disabledAt: new Date() }).where(eq(users.id, id))
      await addMember(organization.id, id, 'owner')
      return tokenOf(id)
    })
    const reply = await caller.request(route.method, fill(route, target))
    expect(reply.status).toBe(403)
    expectText(route, reply, 'is disabled')
    if (route.path.startsWith('/v2/')) expect(reply.body.error.code).toBe('forbidden.access_disabled')
  })
})

describe.each(ofResource)('$method $path', (route) => {
  it('answers 403 to the owner of an organization that the operator has disabled', async () => {
    const reply = await formerOwner().request(route.method, fill(route, disabled))
    expect(reply.status).toBe(403)
    expectText(route, reply, 'is disabled')
  })
})

describe.each(scoped)('$method $path', (route) => {
  it('answers 403 to a token without its scope, whoever the user is', async () => {
    const needed = scopeOf(route)
    const scopes = SCOPES.filter((scope) => scope !== needed)
    const caller = await shared(`without ${needed}`, () => newMember(organization, 'owner', undefined, { scopes }))
    const reply = await caller.request(route.method, fill(route, target))
    expect(reply.status).toBe(403)
    expectText(route, reply, String(needed))
  })
})

describe.each(ofResource)('$method $path', (route) => {
  it('answers another organization as if the resource did not exist', async () => {
    const caller = await outsider()
    const branch = '00000000-0000-4000-8000-000000000000'
    const missing = { slug: 'no-such-organization', ref: 'abcdefghijklmnopqrst', branch }
    const theirs = await caller.request(route.method, fill(route, target))
    const nobodys = await caller.request(route.method, fill(route, missing))
    expect(theirs.status).toBe(404)
    const { id: _theirs, ...body } = theirs.body.error ?? theirs.body
    const { id: _nobodys, ...expected } = nobodys.body.error ?? nobodys.body
    expect(body).toEqual(expected)
  })

  it('refuses a malformed ref or slug by name', async () => {
    const caller = await outsider()
    const reply = await caller.request(route.method, fill(route, { slug: 'no%20slug', ref: 'NOT-A-REF', branch: '-' }))
    expect(reply.status).toBe(400)
    if (route.method === 'HEAD') return
    expect(JSON.stringify(reply.body)).toMatch(/Invalid (project ref|organization slug)|branch_id_or_ref/)
  })

  const permission = route.permission ?? scopeOf(route)
  it.each(ROLES.filter((role) => permission && !roleAllows(role, permission)))(
    'answers 403 to the role %s',
    async (role) => {
      const reply = await (await ofRole(role)).request(route.method, fill(route, target))
      expect(reply.status).toBe(403)
      expectText(route, reply, role)
    },
  )
})

describe.each(routes.filter(({ path }) => !path.startsWith('/v1/oauth/')))('$method $path', (route) => {
  it('refuses an unknown query parameter, and names it', async () => {
    const caller = await ofRole('owner')
    const reply = await caller.request(route.method, `${fill(route, target)}?made_up=1`)
    expect(reply.status).toBe(400)
    expectText(route, reply, 'query.made_up')
  })
})

describe.each(routes.filter(changesProject))('$method $path', (route) => {
  it('changes nothing of a project that is being deleted, and says so', async () => {
    const caller = await ofRole('owner')
    const reply = await caller.request(route.method, fill(route, { ...target, ref: going }))
    expect(reply.status).toBe(409)
    expect(JSON.stringify(reply.body)).toContain('its status is GOING_DOWN')
  })
})

describe.each(secured.filter(({ body }) => body && !isBufferedBody(body)))('$method $path', (route) => {
  const call = async (raw: BodyInit, type: string | undefined) => {
    const caller = await ofRole('owner')
    const headers: Record<string, string> = type ? { 'content-type': type } : {}
    return caller.send(route.method, fill(route, target), { raw, headers })
  }
  const json = 'application/json'

  const body = route.body as z.ZodType
  const given = isOptional(body) ? body.unwrap() : body

  it('refuses a body that is not JSON, missing, of another type, too large, or invalid', async () => {
    const tooLarge = `"${'x'.repeat(route.bodySizeBytesMax ?? 1024 * 1024)}"`
    expect((await call('{', json)).status).toBe(400)
    // A row without a required body would act without one.
    if (!isOptional(body)) expect((await call('', json)).status).toBe(400)
    expect(JSON.stringify((await call('0', json)).body)).toContain('body')
    expect((await call('{}', 'text/plain')).status).toBe(415)
    expect((await call(new Blob(['{}']), undefined)).status).toBe(415)
    expect((await call(tooLarge, json)).status).toBe(413)
  })

  const fields = Object.keys((given as { shape?: object }).shape ?? {})
  it.each(fields)('refuses a NUL and half a surrogate pair in %s with a 4xx', async (field) => {
    for (const text of ['a\u0000b', '\ud800 x', 'https://example.com/a\u0000']) {
      const reply = await call(JSON.stringify({ ...VALID, [field]: text }), json)
      expect([400, 404]).toContain(reply.status)
    }
  })
})

describe.each(secured.filter(({ body }) => isBufferedBody(body)))('$method $path', (route) => {
  const { forms, sizeBytesMax } = isBufferedBody(route.body) ? route.body : { forms: {}, sizeBytesMax: 0 }
  const call = async (raw: BodyInit, type: string | undefined) => {
    const caller = await ofRole('owner')
    return caller.send(route.method, fill(route, target), { raw, headers: { ...(type && { 'content-type': type }) } })
  }

  it('refuses a body that is of another type or too large', async () => {
    const refused = await call('x', 'application/x-www-form-urlencoded')
    expect(refused.status).toBe(415)
    const [type = ''] = Object.keys(forms)
    expect(JSON.stringify(refused.body)).toContain(type)
    expect((await call(new Blob(['x']), undefined)).status).toBe(415)
    const tooLarge = await call(new Uint8Array(sizeBytesMax + 1), type)
    expect(tooLarge.status).toBe(413)
    expect(JSON.stringify(tooLarge.body)).toContain(String(sizeBytesMax))
  })

  it.each(Object.keys(forms).filter((type) => /json|form/.test(type)))(
    'refuses a body that is not valid %s',
    async (type) => {
      expect((await call('{', type)).status).toBe(400)
      expect((await call('--x\r\n', `${type}; boundary=x`)).status).toBe(400)
    },
  )
})

describe.each(secured.filter(({ query }) => query))('$method $path', (route) => {
  it.each(Object.keys(route.query?.shape ?? {}))('refuses a NUL in %s and names it', async (name) => {
    const caller = await ofRole('owner')
    const reply = await caller.request(route.method, `${fill(route, target)}?${name}=%00`)
    expect(reply.status).toBe(400)
    expect(JSON.stringify(reply.body)).toContain(`query.${name}`)
  })
})

describe('the route table', () => {
  it('gives every operation an id of its own', () => {
    expect(new Set(routes.map(({ id }) => id)).size).toBe(routes.length)
  })

  it('hides no route behind an earlier pattern', () => {
    const covers = (pattern: string, path: string) => new RegExp(`^${pattern.replace(/\{\w+\}/g, '[^/]+')}$`).test(path)
    const hidden = routes.filter((route, index) =>
      routes.slice(0, index).some((earlier) => earlier.method === route.method && covers(earlier.path, route.path)),
    )
    expect(hidden.map(({ id }) => id)).toEqual([])
  })

  it('requires a token on every path of the management API except those that lead to one', () => {
    const open = routes.filter(({ scope }) => scope === 'public').map(({ method, path }) => `${method} ${path}`)
    expect(open).toEqual([
      'GET /v1/oauth/authorize',
      'POST /v1/oauth/authorize',
      'GET /v1/oauth/authorize/project-claim/{token}',
      'POST /v1/oauth/authorize/project-claim/{token}',
      'POST /v1/oauth/token',
      'POST /v1/oauth/revoke',
    ])
  })
})

describe('a deprecated endpoint', () => {
  const deprecationOf = async (route: Route) => {
    const { headers } = await stranger().request(
      route.method,
      fill(route, { slug: 's', ref: 'a'.repeat(20), branch: 'b' }),
    )
    return headers.get('deprecation')
  }

  it.each(routes.filter(({ deprecated }) => deprecated))('says so in each reply: $id', async (route) => {
    expect(await deprecationOf(route)).toBe('@1795219200')
  })

  it('is not marked in replies unless the document marks it', async () => {
    const [other] = secured.filter(({ deprecated }) => !deprecated)
    expect(await deprecationOf(other as Route)).toBeNull()
  })
})
