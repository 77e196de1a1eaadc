import { createHmac } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { createRandom, type Random } from '../../faults/random.ts'
import { type Caller, newOrganization, type TestOrganization } from '../../support/api.ts'
import { type Config, FIELD_VALUES } from '../../support/auth-config-values.ts'
import { act, newBranch } from '../../support/branches.ts'
import { extended, isExtended } from '../../support/extended.ts'
import { newProject } from '../../support/projects.ts'

let organization: TestOrganization
let owner: Caller
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
})

const PATHS = {
  auth: 'config/auth',
  pooler: 'config/database/pooler',
  postgrest: 'postgrest',
  realtime: 'config/realtime',
  storage: 'config/storage',
}
type Area = keyof typeof PATHS
/** The last value of each field by area, or null for a field set to nothing. */
type State = Record<Area, Config>

const FIELDS = new Map(FIELD_VALUES.map((field) => [field.name, field]))

const mail = (n: number) => ({
  smtp_host: `m${n}.example`,
  smtp_port: String(n + 1),
  smtp_user: `u${n}`,
  smtp_pass: `p${n}`,
  smtp_admin_email: `a${n}@m.example`,
})
const NO_MAIL: Config = {
  ...Object.fromEntries(Object.keys(mail(0)).map((name) => [name, null])),
  smtp_sender_name: null,
}

/** Groups of fields whose values depend on each other, together and apart. */
const GROUPS: ((n: number) => Config)[] = [
  mail,
  (n) => ({ smtp_user: `only${n}` }),
  () => ({ smtp_host: null }),
  (n) => ({
    external_github_enabled: true,
    external_github_client_id: `id${n}`,
    external_github_secret: `secret${n}`,
  }),
  () => ({ external_github_enabled: false, external_github_client_id: null }),
  () => ({ external_github_enabled: false, external_github_secret: '' }),
  (n) => ({ external_google_enabled: true, external_google_client_id: `id${n}` }),
  (n) => ({ external_google_enabled: true, external_google_additional_client_ids: `id${n}` }),
  () => ({ external_google_client_id: null }),
  () => ({ external_google_additional_client_ids: null }),
  () => ({ db_max_pool_size: 101, db_max_pool_size_unit: 'connections' }),
  (n) => ({ db_max_pool_size: n, db_max_pool_size_unit: 'percent' }),
  () => ({ db_max_pool_size: 102 }),
  () => ({ db_max_pool_size_unit: 'percent' }),
  (n) => ({ passkey_enabled: true, webauthn_rp_id: `a${n}.example`, webauthn_rp_origins: 'https://a.example' }),
  () => ({ passkey_enabled: false, webauthn_rp_id: null }),
  (n) => ({
    external_phone_enabled: true,
    sms_provider: 'textlocal',
    sms_textlocal_api_key: `k${n}`,
    sms_textlocal_sender: `s${n}`,
  }),
  (n) => ({
    external_phone_enabled: true,
    hook_send_sms_enabled: true,
    hook_send_sms_uri: `pg-functions://postgres/public/f${n}`,
  }),
  () => ({ hook_send_sms_enabled: false, hook_send_sms_uri: null }),
  () => ({ external_phone_enabled: false, sms_textlocal_sender: null }),
]

function someFields({ pick, whole }: Random): Config {
  const fields = Array.from({ length: whole(1, 12) }, () => pick(FIELD_VALUES))
  return Object.fromEntries(
    fields.map(({ name, least, most, takesNull }) => [name, pick([least, most, ...(takesNull ? [null] : [])])]),
  )
}

function someChange(random: Random): [Area, Config] {
  const { pick, whole, chance } = random
  const n = whole(1, 40)
  if (chance(0.5)) return ['auth', pick(GROUPS)(n)]
  return pick<[Area, Config]>([
    ['auth', someFields(random)],
    ['pooler', pick<Config>([{ default_pool_size: pick([n, null]) }, { pool_mode: pick(['session', 'transaction']) }])],
    ['postgrest', pick<Config>([{ max_rows: n }, { db_pool: n, db_schema: `s${n}` }])],
    ['realtime', pick<Config>([{ suspend: chance(0.5) }, { max_joins_per_second: n, presence_enabled: chance(0.5) }])],
    ['storage', { fileSizeLimit: n }],
  ])
}

/** Returns the values that then apply: a removed secret and a field set to null have their defaults. */
function known(area: Area, fresh: Config, body: Config): Config {
  const gone: Config = area === 'auth' && body.smtp_host === null ? NO_MAIL : {}
  return Object.fromEntries(
    Object.entries<Config[string]>({ ...gone, ...body }).map(([name, value]) => {
      const isNothing = value === null || (area === 'auth' && FIELDS.get(name)?.secret && value === '')
      return [name, isNothing ? (fresh[name] ?? null) : value]
    }),
  )
}

function visibleConfig(ref: string, area: Area, config: Config): Config {
  const digest = (secret: unknown) => createHmac('sha256', ref).update(String(secret)).digest('hex')
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => {
      const isSecret = area === 'auth' && FIELDS.get(name)?.secret && value !== null
      return [name, isSecret ? digest(value) : value]
    }),
  )
}

async function read(ref: string): Promise<State> {
  const entries = Object.entries(PATHS).map(async ([area, path]) => {
    const { body } = await owner.get(`/v1/projects/${ref}/${path}`)
    const { jwt_secret: _, connection_string: __, ...config } = area === 'pooler' ? body[0] : body
    return [area, config]
  })
  return Object.fromEntries(await Promise.all(entries))
}

const AREAS = Object.keys(PATHS) as Area[]

/** Returns only the names of the fields, because their values are long. */
const differing = (ref: string, read: State, model: State) =>
  AREAS.flatMap((area) => {
    const expected = visibleConfig(ref, area, model[area])
    return Object.keys(expected).filter((name) => read[area][name] !== expected[name])
  })

const NOTHING: State = { auth: {}, pooler: {}, postgrest: {}, realtime: {}, storage: {} }

describe('arbitrary changes of a project and of its branch', () => {
  /** Rounds of changes; `counts` has the number of left-out fields of each reset. */
  const ROUNDS = isExtended ? 6 : 3
  const counts: number[] = []

  it.each(isExtended ? [1, 2] : [2])(
    "leave each field of the branch at its own value, or else at the parent's at a reset (seed %d)",
    async (seed) => {
      const random = createRandom(seed)
      const ref = await newProject(organization)
      const fresh = await read(ref)
      const parent = structuredClone(NOTHING)
      const model = structuredClone(NOTHING)
      const own = new Set<string>()
      const patch = (of: string, area: Area, body: Config) => owner.patch(`/v1/projects/${of}/${PATHS[area]}`, body)
      const holds = (state: State, area: Area, name: string) => state[area][name] ?? fresh[area][name] ?? null

      async function change(of: string, state: State): Promise<void> {
        const [area, body] = someChange(random)
        const { status } = await patch(of, area, body)
        if (status === 400) return
        expect(status).toBeLessThan(300)
        for (const [name, value] of Object.entries(known(area, fresh[area], body))) {
          if (of !== ref && holds(state, area, name) !== value) own.add(`${area}.${name}`)
          state[area][name] = value
        }
      }

      function inherit(leftOut: readonly string[]): void {
        for (const area of AREAS)
          for (const name of new Set([...Object.keys(parent[area]), ...Object.keys(model[area])])) {
            if (own.has(`${area}.${name}`) || leftOut.includes(name)) continue
            model[area][name] = holds(parent, area, name)
          }
      }

      for (let n = 0; n < 4; n++) await change(ref, parent)
      const branch = await newBranch(owner, ref)
      const { project_ref: heir } = branch
      inherit([])
      expect(differing(heir, await read(heir), model)).toEqual([])
      for (let round = 0; round < ROUNDS; round++) {
        for (let n = 0; n < 3; n++) await change(heir, model)
        for (let n = 0; n < 3; n++) await change(ref, parent)
        expect(await act(owner, branch, 'reset')).toMatchObject({ deploy: 'EXITED' })
        const [run] = (await owner.get(`/v1/projects/${heir}/actions`)).body
        const { body: log } = await owner.get(`/v1/projects/${heir}/actions/${run.id}/logs`)
        const leftOut = /contradict.*: (.*)\n/.exec(log)?.[1]?.split(', ') ?? []
        counts.push(leftOut.length)
        expect(leftOut.filter((name) => own.has(`auth.${name}`))).toEqual([])
        inherit(leftOut)
        expect(differing(heir, await read(heir), model)).toEqual([])
        // The fields that were left out contradict the branch's own, and no others do.
        const refused = Object.fromEntries(leftOut.map((name) => [name, holds(parent, 'auth', name)]))
        expect((await patch(heir, 'auth', refused)).status).toBe(leftOut.length > 0 ? 400 : 200)
      }
    },
    240_000,
  )

  extended('include changes that contradict each other, and some that do not', () => {
    expect(counts).toContain(0)
    expect(Math.max(...counts)).toBeGreaterThan(1)
  })
})
