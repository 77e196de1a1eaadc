import { createHmac } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { newOrganization, type TestOrganization } from '../../support/api.ts'
import { type Config, FIELD_VALUES, type FieldValues } from '../../support/auth-config-values.ts'
import { createProject } from '../../support/projects.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

async function newConfig() {
  const ref = await createProject(organization)
  const path = `/v1/projects/${ref}/config/auth`
  return {
    ref,
    read: async (): Promise<Config> => (await organization.owner.get(path)).body,
    change: (body: object) => organization.owner.patch(path, body),
  }
}

const bodyOf = <T>(pick: (field: FieldValues) => T): Record<string, T> =>
  Object.fromEntries(FIELD_VALUES.map((field) => [field.name, pick(field)]))

/** Returns only the names of the fields, because their values are long. */
const differing = (one: Config, other: Config) =>
  Array.from(new Set([...Object.keys(one), ...Object.keys(other)])).filter((name) => one[name] !== other[name])

/** Returns the value that GET shows for an accepted one. */
function visibleValue(ref: string, { secret, default: value }: FieldValues, given: Config[string]): Config[string] {
  if (given === null || (secret && given === '')) return value
  return secret ? createHmac('sha256', ref).update(String(given)).digest('hex') : given
}

describe('each field of the configuration of Auth', () => {
  it.each(['least', 'most'] as const)('accepts the %s of its limits and returns it', async (bound) => {
    const { ref, read, change } = await newConfig()
    const reply = await change(bodyOf((field) => field[bound]))
    const expected = bodyOf((field) => visibleValue(ref, field, field[bound]))
    expect(reply.status).toBe(200)
    expect(differing(reply.body, { ...reply.body, ...expected })).toEqual([])
    expect(differing(await read(), reply.body)).toEqual([])
  })

  it('is refused by its name just outside of them, and nothing changes', async () => {
    const { read, change } = await newConfig()
    await change({ jwt_exp: 77, external_x_secret: 'x' })
    const before = await read()
    const rounds = Math.max(...FIELD_VALUES.map(({ refused }) => refused.length))
    for (let round = 0; round < rounds; round++) {
      const reply = await change(bodyOf(({ refused }) => refused[round % refused.length]))
      expect(reply.status).toBe(400)
      const named = Array.from(String(reply.body.message).matchAll(/body\.(\w+): /g), ([, name]) => name)
      expect(FIELD_VALUES.map(({ name }) => name).filter((name) => !named.includes(name))).toEqual([])
    }
    expect(differing(await read(), before)).toEqual([])
  })

  it('is not searched if it is too long, which could take seconds', async () => {
    const { change } = await newConfig()
    const { status, body } = await change({ sessions_tags: `a,${' '.repeat(40_000)}!` })
    expect([status, body.message.match(/body\.sessions_tags: /g)]).toEqual([400, ['body.sessions_tags: ']])
    expect(body.message).toContain('2000')
  })

  it('accepts null for its default, unless it requires a value', async () => {
    const { read, change } = await newConfig()
    const before = await read()
    await change(bodyOf(({ most }) => most))
    const reply = await change(bodyOf(({ takesNull, least }) => (takesNull ? null : least)))
    const kept = bodyOf((field) => (field.takesNull ? field.default : field.least))
    expect(reply.status).toBe(200)
    expect(differing(reply.body, { ...before, ...kept })).toEqual([])
    const strict = FIELD_VALUES.filter(({ takesNull }) => !takesNull).map(({ name }) => name)
    expect(strict.sort()).toEqual(['custom_oauth_enabled', 'mailer_otp_exp', 'passkey_enabled', 'sms_otp_length'])
    const refused = await change(Object.fromEntries(strict.map((name) => [name, null])))
    for (const name of strict) expect(refused.body.message).toContain(`body.${name}: `)
  })

  it('has the limits that clients know', () => {
    const bounds = Object.fromEntries(FIELD_VALUES.map(({ name, least, most }) => [name, [least, most]]))
    expect(bounds).toMatchObject({
      jwt_exp: [0, 604_800],
      password_min_length: [6, 32_767],
      mailer_otp_length: [6, 10],
      smtp_max_frequency: [0, 32_767],
      rate_limit_verify: [1, 2_147_483_647],
      mfa_max_enrolled_factors: [0, 2_147_483_647],
      sms_otp_length: [0, 32_767],
      security_captcha_provider: ['turnstile', 'hcaptcha'],
    })
    expect(FIELD_VALUES).toHaveLength(235)
  })
})

describe('the template of a mail', () => {
  const bodies = FIELD_VALUES.map(({ name }) => name).filter((name) => name.startsWith('mailer_templates_'))
  const [first = '', second = '', third = '', fourth = '', fifth = '', sixth = ''] = bodies
  const text = (length: number) => `<p>{{ .Token }}é"\n`.padEnd(length, 'x')
  const longest = text(200_000)

  it('has at most 200,000 characters', async () => {
    const { read, change } = await newConfig()
    expect((await change({ [first]: longest })).status).toBe(200)
    expect((await read())[first]).toBe(longest)
    const refused = await change({ [first]: text(200_001), jwt_exp: 77 })
    expect(refused.status).toBe(400)
    expect(refused.body.message).toMatch(new RegExp(` body\\.${first}: .*200000`))
    expect(differing(await read(), { ...(await read()), [first]: longest, jwt_exp: 3_600 })).toEqual([])
  })

  it('has only the space that the others leave of 1,000,000', async () => {
    const { read, change } = await newConfig()
    const taken = { [first]: longest, [second]: longest, [third]: longest, [fourth]: longest }
    const { body } = await change(taken)
    const together = bodies.reduce((sum, name) => sum + String(body[name]).length, 0)
    const left = 1_000_000 - together + String(body[fifth]).length
    const most = text(left)
    const reply = await change({ [fifth]: `${most}x` })
    expect(reply.status).toBe(400)
    expect(reply.body.message).toMatch(
      / body\.mailer_templates_\w+_content: .*1000001 characters, at most 1000000 are allowed$/,
    )
    expect((await read())[fifth]).toBe(body[fifth])
    expect((await change({ [fifth]: most })).status).toBe(200)
    expect((await change({ [sixth]: longest })).status).toBe(400)
    expect((await change({ [first]: null, [sixth]: longest })).status).toBe(200)
  })

  it('is accepted in a body of at most 8 MiB', async () => {
    const { read, change } = await newConfig()
    const bodyOfSize = (bytes: number) => {
      const empty = JSON.stringify({ [first]: '', jwt_exp: 77 }).length
      return { [first]: 'x'.repeat(bytes - empty), jwt_exp: 77 }
    }
    const within = await change(bodyOfSize(8 * 1024 ** 2))
    expect([within.status, within.body.message]).toEqual([400, expect.stringContaining(`body.${first}: `)])
    const beyond = await change(bodyOfSize(8 * 1024 ** 2 + 1))
    expect([beyond.status, beyond.body.message]).toEqual([413, expect.stringContaining('at most 8388608 bytes')])
    expect((await read()).jwt_exp).toBe(3_600)
  })
})

/** Returns numbers that are the same in each run (mulberry32). */
function numbersFrom(seed: number) {
  let state = seed
  return (below: number): number => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

const MAIL_SERVER = ['smtp_host', 'smtp_port', 'smtp_user', 'smtp_pass', 'smtp_admin_email', 'smtp_sender_name']

/** Returns a few fields with values that are accepted one by one. */
function randomChange(pick: (below: number) => number): Config {
  const count = 1 + pick(12)
  const fields = Array.from({ length: count }, () => FIELD_VALUES[pick(FIELD_VALUES.length)] as FieldValues)
  return Object.fromEntries(
    fields.map((field) => {
      const values = [field.least, field.most, ...(field.takesNull ? [null] : [])]
      return [field.name, values[pick(values.length)] ?? null]
    }),
  )
}

describe('any change of the configuration of Auth', () => {
  it.each([1, 2])('is applied completely or not at all (seed %d)', async (seed) => {
    const { ref, read, change } = await newConfig()
    const pick = numbersFrom(seed)
    const byName = new Map(FIELD_VALUES.map((field) => [field.name, field]))
    let model = await read()
    const statuses = new Set<number>()
    for (let round = 0; round < 15; round++) {
      const body = randomChange(pick)
      const reply = await change(body)
      statuses.add(reply.status)
      if (reply.status === 200) {
        const gone = body.smtp_host === null ? MAIL_SERVER.map((name) => [name, null]) : []
        const given = Object.entries(body).map(([name, value]) => [
          name,
          visibleValue(ref, byName.get(name) as FieldValues, value),
        ])
        model = { ...model, ...Object.fromEntries(gone), ...Object.fromEntries(given) }
        expect(differing(reply.body, model)).toEqual([])
      } else expect(differing(await read(), model)).toEqual([])
    }
    expect(differing(await read(), model)).toEqual([])
    expect([...statuses].sort()).toEqual([200, 400])
  })
})
