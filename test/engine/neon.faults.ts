import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type PointInTimeRequest, type ProjectSpec, parseRows } from '../../src/engine/engine.ts'
import { EngineRefusal, EngineUnavailable, Superseded } from '../../src/engine/engine-errors.ts'
import type { Fence } from '../../src/engine/fence.ts'
import { loginRole } from '../../src/engine/logins.ts'
import { SCRAM_ITERATIONS } from '../support/neon-server/compute.ts'
import { type NeonUnderTest, startNeonEngine } from './neon-engine.ts'
import { newRef, RUNNER_PASSWORD, specOf, withClient } from './specs.ts'

let neon: NeonUnderTest
let parent: string
const { password: PASSWORD } = specOf(newRef())

beforeAll(async () => {
  neon = await startNeonEngine()
  parent = await project('create table people as select 1 as n')
})
afterEach(() => expect(neon.server.violations).toEqual([]))
afterAll(() => neon.stop())

const engine = () => neon.engine
const query = (ref: string, text: string) =>
  engine().runSql({ ref, runnerPassword: RUNNER_PASSWORD, query: text, readOnly: false })
const copyOf = (ref: string, data = true) => ({
  from: parent,
  fromRunnerPassword: RUNNER_PASSWORD,
  to: specOf(ref),
  data,
})
const copyTo = (ref: string, data?: boolean, fence?: Fence) => engine().copy(copyOf(ref, data), fence)
const namesOf = (ref: string) => {
  const { projects, branches } = neon.server
  const names = [
    ...[...projects.values()].map(({ project }) => project.name),
    ...branches().map(({ branch }) => branch.name),
  ]
  return names.filter((name) => name.includes(ref))
}

const computeOf = async (ref: string) => {
  const found = neon.server.branches().find(({ branch }) => branch.id === neon.states.get(ref)?.site?.branchId)
  if (!found) throw new Error(`${ref} has no branch`)
  return found.compute
}

const rolesLike = async (ref: string) =>
  (
    await (
      await computeOf(ref)
    ).rows<{ rolname: string }>(`select rolname from pg_roles where rolname ~ '${ref}|_login_'`)
  ).map(({ rolname }) => rolname)

async function project(sql: string): Promise<string> {
  const ref = newRef()
  await engine().create(specOf(ref))
  await query(ref, sql)
  return ref
}

/** Returns the operations of Neon's API that `work` calls, without the polls, whose number depends on Neon. */
async function callsOf(work: () => Promise<unknown>): Promise<string[]> {
  const { calls } = neon.server
  calls.length = 0
  await work()
  return calls.filter((call) => call !== 'getProjectOperation')
}

describe("the calls to Neon's API", () => {
  test('are as few as possible, and none for SQL', async () => {
    const ref = newRef()
    const branch = newRef()
    const sql = { ref, runnerPassword: RUNNER_PASSWORD }
    expect({
      create: await callsOf(() => engine().create(specOf(ref))),
      again: await callsOf(() => engine().create(specOf(ref))),
      health: await callsOf(() => engine().health(ref, 5_000)),
      sql: await callsOf(() => query(ref, 'select 1')),
      batch: await callsOf(() => engine().runBatch({ ...sql, statements: [{ text: 'select 1', params: [] }] })),
      password: await callsOf(() => engine().setPassword(ref, 'Another-0wner_of-it')),
      pause: await callsOf(() => engine().pause(ref)),
      resume: await callsOf(() => engine().resume(ref)),
      restart: await callsOf(() => engine().restart(ref)),
      copy: await callsOf(() => copyTo(branch)),
      copied: await callsOf(() => copyTo(branch)),
      removeBranch: await callsOf(() => engine().remove(branch)),
      remove: await callsOf(() => engine().remove(ref)),
    }).toEqual({
      create: ['listProjects', 'createProject', 'listProjects'],
      again: ['updateProjectEndpoint'],
      health: ['getProjectEndpoint'],
      sql: [],
      batch: [],
      password: [],
      pause: ['updateProjectEndpoint'],
      resume: ['updateProjectEndpoint'],
      restart: ['restartProjectEndpoint'],
      copy: ['listProjectBranches', 'createProjectBranch', 'getConnectionURI'],
      copied: [],
      removeBranch: ['listProjectBranches', 'deleteProjectBranch'],
      remove: ['listProjects', 'listProjectBranches', 'deleteProject'],
    })
  })

  test('set passwords in the clear, so that no stored hash is one that Neon did not compute', async () => {
    const ref = newRef()
    await copyTo(ref)
    await query(ref, `set role none; alter role current_user password 'Lost-and-gone_1'`)
    await query(ref, 'select 1')
    await engine().setPassword(parent, PASSWORD)
    for (const each of [parent, ref]) {
      const hashed = await (await computeOf(each)).rows(
        `select rolname from pg_authid where rolname like 'p\\_%' and rolpassword not like 'SCRAM-SHA-256$${SCRAM_ITERATIONS}:%'`,
      )
      expect(hashed).toEqual([])
    }
  })
})

describe('if Neon is busy, the driver', () => {
  test('waits while other work on the project goes on (423)', async () => {
    neon.server.fault({ operation: 'createProjectBranch', status: 423, times: 2 })
    neon.server.fault({ operation: 'updateProjectEndpoint', status: 423 })
    const ref = newRef()
    await copyTo(ref)
    await engine().pause(ref)
    expect(namesOf(ref)).toHaveLength(1)
  })

  test('waits for a real operation: work on a branch while another one is being made', async () => {
    neon.server.behaviour.operationMs = 400
    const [one, other] = [newRef(), newRef()]
    await Promise.all([copyTo(one), copyTo(other)])
    neon.server.behaviour.operationMs = 5
    expect(await engine().health(one, 5_000)).toEqual({ healthy: true })
    expect(await engine().health(other, 5_000)).toEqual({ healthy: true })
  })

  test('waits as long as Neon says (429)', async () => {
    neon.server.fault({ operation: 'getProjectEndpoint', status: 429, headers: { 'retry-after': '2' } })
    const startedAt = performance.now()
    expect(await engine().health(parent, 10_000)).toEqual({ healthy: true })
    expect(performance.now() - startedAt).toBeGreaterThan(1_990)
  })

  test('reports a project as unhealthy while Neon does not answer in time', async () => {
    neon.server.fault({ operation: 'getProjectEndpoint', status: 503, times: 2 })
    expect(await engine().health(parent, 200)).toEqual({ healthy: false, error: 'no answer in 200 ms' })
    await expect.poll(() => engine().health(parent, 5_000)).toEqual({ healthy: true })
  })
})

describe('an attempt that is overtaken', () => {
  test.each(['pause', 'resume', 'restart'] as const)('while Neon is busy does not repeat its %s', async (work) => {
    const ref = await project('select 1')
    if (work === 'resume') await engine().pause(ref)
    const before = await engine().health(ref, 5_000)
    const operation = work === 'restart' ? 'restartProjectEndpoint' : 'updateProjectEndpoint'
    const busy = neon.server.fault({ operation, status: 423 })
    const calls = await callsOf(() =>
      expect(engine()[work](ref, async () => busy.times > 0)).rejects.toThrow(Superseded),
    )
    expect(calls).toEqual([operation])
    expect(await engine().health(ref, 5_000)).toEqual(before)
  })

  test('while a project is made or removed does nothing more', async () => {
    const ref = newRef()
    const isNoted = async () => !neon.states.has(ref)
    await expect(engine().create(specOf(ref), isNoted)).rejects.toThrow(Superseded)
    expect(await rolesLike(ref)).toEqual([])
    const busy = neon.server.fault({ operation: 'deleteProject', status: 423 })
    await expect(engine().remove(ref, async () => busy.times > 0)).rejects.toThrow(Superseded)
    expect(namesOf(ref)).toHaveLength(1)
    await engine().create(specOf(ref))
    await query(ref, 'select 1')
  })

  test.each([true, false])('while a copy is made does nothing more (with data: %s)', async (data) => {
    const ref = newRef()
    const noteOf = () => JSON.stringify(neon.states.get(ref))
    const attempt = async (questionsMax: number): Promise<boolean> => {
      let [questions, note] = [0, '']
      const { calls } = neon.server
      const fence = async () => {
        questions += 1
        ;[calls.length, note] = [0, noteOf()]
        return questions <= questionsMax
      }
      const outcome = await copyTo(ref, data, fence).catch((error) => error)
      if (outcome === undefined) return true
      expect(outcome).toBeInstanceOf(Superseded)
      expect({ calls: [...calls], note: noteOf() }).toEqual({ calls: [], note })
      return false
    }
    let attempts = 0
    while (!(await attempt(attempts))) attempts += 1
    expect(attempts).toBeGreaterThanOrEqual(5)
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select n from people')
  })

  test('removes nothing that Neon could not make', async () => {
    const ref = newRef()
    neon.server.behaviour.failing.push('create_branch')
    await expect(copyTo(ref, true, async () => !neon.states.get(ref)?.site)).rejects.toThrow(Superseded)
    expect(namesOf(ref)).toHaveLength(1)
    await engine().remove(ref)
  })
})

describe('if Neon fails, the driver', () => {
  test.each([500, 503, 0])('repeats what can be repeated (%i)', async (status) => {
    const ref = newRef()
    for (const operation of ['listProjectBranches', 'getProjectOperation', 'getConnectionURI']) {
      neon.server.fault({ operation, status })
    }
    await copyTo(ref)
    for (const operation of ['listProjectBranches', 'deleteProjectBranch']) {
      neon.server.fault({ operation, status, after: operation === 'deleteProjectBranch' })
    }
    await engine().remove(ref)
    expect(namesOf(ref)).toEqual([])
  })

  test.each([502, 0])('makes no second project if the answer to the first was lost (%i)', async (status) => {
    const ref = newRef()
    neon.server.fault({ operation: 'createProject', status, after: true })
    await expect(engine().create(specOf(ref))).rejects.toThrow(EngineUnavailable)
    await engine().create(specOf(ref))
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select 1')
    await engine().remove(ref)
    expect(namesOf(ref)).toEqual([])
  })

  test.each([402, 422])('reports what Neon refuses, such as one branch too many for its plan (%i)', async (status) => {
    const [ref, branch] = [newRef(), newRef()]
    neon.server.fault({ operation: 'createProject', status })
    neon.server.fault({ operation: 'createProjectBranch', status })
    await expect(engine().create(specOf(ref))).rejects.toThrow(EngineRefusal)
    await expect(copyTo(branch)).rejects.toThrow(EngineRefusal)
    expect([...namesOf(ref), ...namesOf(branch)]).toEqual([])
  })

  test('makes no second branch if the answer to the first was lost', async () => {
    const ref = newRef()
    neon.server.fault({ operation: 'createProjectBranch', status: 0, after: true })
    await expect(copyTo(ref)).rejects.toThrow(EngineUnavailable)
    await copyTo(ref)
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select n from people')
  })

  test('removes what was made by a request whose answer was lost', async () => {
    const [ref, branch] = [newRef(), newRef()]
    neon.server.fault({ operation: 'createProject', status: 0, after: true })
    neon.server.fault({ operation: 'createProjectBranch', status: 0, after: true })
    await expect(engine().create(specOf(ref))).rejects.toThrow(EngineUnavailable)
    await expect(copyTo(branch)).rejects.toThrow(EngineUnavailable)
    await engine().remove(ref)
    await engine().remove(branch)
    expect([...namesOf(ref), ...namesOf(branch)]).toEqual([])
  })

  test('keeps one of two projects whose creation overlapped', async () => {
    const ref = newRef()
    for (const _ of [1, 2]) {
      neon.server.createProject(`pilothouse-${ref}`)
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
    await engine().create(specOf(ref))
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select 1')
  })

  test('keeps one also if the other was made after the driver had looked', async () => {
    const ref = newRef()
    const { calls } = neon.server
    calls.length = 0
    const overlapping: Fence = async () => {
      if (calls.includes('listProjects') && namesOf(ref).length === 0) {
        neon.server.createProject(`pilothouse-${ref}`)
        const { created_at: past } = neon.server.project(`pilothouse-${ref}`)
        await expect.poll(() => new Date().toISOString() > past).toBe(true)
      }
      return true
    }
    await expect(engine().create(specOf(ref), overlapping)).rejects.toThrow('Another attempt is creating it')
    await engine().create(specOf(ref))
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select 1')
  })

  function whereCreationFails(name: string, check: (ref: string, action: string) => Promise<void>): void {
    test.each(['create_timeline', 'start_compute'])(name, async (action) => {
      const ref = newRef()
      neon.server.behaviour.failing.push(action)
      await check(ref, action)
      const failed = neon.states.get(ref)?.projectId
      await engine().create(specOf(ref))
      expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
      expect(neon.states.get(ref)?.projectId).not.toBe(failed)
      await query(ref, 'select 1')
    })
  }

  whereCreationFails('takes away what it could not make (%s), and makes it anew', async (ref, action) => {
    await expect(engine().create(specOf(ref))).rejects.toThrow(`Neon could not ${action}`)
    expect(namesOf(ref)).toEqual([])
  })

  test('removes a branch that Neon could not make, and leaves the parent as it was', async () => {
    const ref = newRef()
    neon.server.behaviour.failing.push('create_branch')
    await expect(copyTo(ref)).rejects.toThrow('Neon could not create_branch')
    expect(namesOf(ref)).toEqual([])
    await copyTo(ref)
    await query(parent, 'select n from people')
  })

  whereCreationFails('takes away at the next attempt what it could not at the first (%s)', async (ref, action) => {
    neon.server.fault({ operation: 'deleteProject', status: 400 })
    await expect(engine().create(specOf(ref))).rejects.toThrow(
      new RegExp(`^Neon could not ${action}: .*; it could not be removed: Neon answered 400: injected 400$`),
    )
    expect(neon.states.get(ref)?.projectId).toBeTypeOf('string')
  })

  test('removes a branch of a branch that Neon could not make', async () => {
    const ref = newRef()
    neon.server.behaviour.failing.push('create_branch')
    neon.server.fault({ operation: 'deleteProjectBranch', status: 400 })
    await expect(copyTo(ref)).rejects.toThrow('it could not be removed')
    const failed = neon.states.get(ref)?.site?.branchId
    await copyTo(ref)
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    expect(neon.states.get(ref)?.site?.branchId).not.toBe(failed)
    await query(ref, 'select n from people')
  })

  test('starts again if what it made has vanished', async () => {
    const ref = newRef()
    await expect(crashingAt(2).create(specOf(ref))).rejects.toThrow('crashed')
    await neon.server.vanish(neon.states.get(ref)?.projectId ?? '')
    await engine().create(specOf(ref))
    await query(ref, 'select 1')
  })

  test('does not repeat a request that it is not authorized to make', async () => {
    const other = neon.another({ apiKey: 'wrong' })
    const calls = await callsOf(() => expect(other.create(specOf(newRef()))).rejects.toThrow('Neon answered 401'))
    expect(calls).toEqual(['listProjects'])
  })

  test('reports a region that Neon does not have', async () => {
    const calls = await callsOf(() =>
      expect(engine().create({ ...specOf(newRef()), region: 'eu-north-1' })).rejects.toThrow(
        'Neon has no region eu-north-1',
      ),
    )
    expect(calls).toEqual([])
  })
})

describe('a crash', () => {
  test.each([1, 2])('of a create, at note %i of its progress, leaves one project once it is repeated', async (nth) => {
    const ref = newRef()
    const crashing = crashingAt(nth)
    await expect(crashing.create(specOf(ref))).rejects.toThrow('crashed')
    await engine().create(specOf(ref))
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select 1')
  })

  test.each([1, 2, 3])('of a copy, at note %i of its progress, leaves one branch once it is repeated', async (nth) => {
    const ref = newRef()
    const crashing = crashingAt(nth)
    await expect(crashing.copy(copyOf(ref))).rejects.toThrow('crashed')
    await engine().copy(copyOf(ref))
    expect(namesOf(ref)).toEqual([`pilothouse-${ref}`])
    await query(ref, 'select n from people')
  })
})

describe('work that an attempt left running at Neon', () => {
  test('is waited for by the next attempt', async () => {
    const ref = newRef()
    neon.server.behaviour.operationMs = 600
    neon.server.fault({ operation: 'getProjectOperation', status: 400 })
    await expect(engine().create(specOf(ref))).rejects.toThrow('Neon answered 400')
    const { projectId } = neon.states.get(ref) ?? {}
    await engine().create(specOf(ref))
    neon.server.behaviour.operationMs = 5
    expect(neon.states.get(ref)).toMatchObject({ projectId, isReady: true })
    await query(ref, 'select 1')
  })

  test('on another branch is not waited for, and its failure does not matter', async () => {
    const [ref, other] = [newRef(), newRef()]
    await expect(crashingAt(3).copy(copyOf(ref))).rejects.toThrow('crashed')
    const { site } = neon.states.get(ref) ?? {}
    neon.server.behaviour.operationMs = 600
    neon.server.behaviour.failing.push('create_branch')
    const failing = expect(copyTo(other)).rejects.toThrow('Neon could not create_branch')
    await expect.poll(() => namesOf(other)).toHaveLength(1)
    await copyTo(ref)
    neon.server.behaviour.operationMs = 5
    expect(neon.states.get(ref)).toMatchObject({ site, isReady: true })
    await failing
  })
})

describe('a password', () => {
  test('that Neon refuses is refused with its reason, and the old one stays', async () => {
    await expect(engine().setPassword(parent, 'short')).rejects.toMatchObject({
      refusals: [{ setting: 'password', reason: expect.stringContaining('short') }],
    })
    await withClient(neon.connect(parent, PASSWORD), (client) => client.query('select'))
  })

  test('that Neon refuses makes the creation of a project fail with its reason', async () => {
    const ref = newRef()
    await expect(engine().create({ ...specOf(ref), password: 'short' })).rejects.toMatchObject({
      refusals: [{ setting: 'password', reason: expect.stringContaining('short') }],
    })
    await engine().create(specOf(ref))
    await query(ref, 'select 1')
  })

  test('that cannot be set for another reason is not reported as invalid', async () => {
    const ref = await project('select 1')
    await (await computeOf(ref)).rows(`alter role p_${ref} rename to somebody_else`)
    const failed = engine().setPassword(ref, 'Another-0wner_of-it')
    await expect(failed).rejects.toThrow(EngineUnavailable)
    await expect(failed).rejects.toMatchObject({ code: '42704' })
  })

  test.each(['settings', 'create', 'diff', 'setPassword'] as const)(
    "of Neon's own that was changed at Neon is fetched again (%s)",
    async (work) => {
      const ref = await project('select 1')
      const found = neon.server.branches().find(({ branch }) => branch.id === neon.states.get(ref)?.site?.branchId)
      if (!found) throw new Error('it has no branch')
      found.password = 'Changed-4t_Neon'
      await (await found.compute).rows(`alter role pilothouse password '${found.password}'`)
      await {
        settings: () => engine().settings.setReadOnly(ref, false),
        create: () => engine().create(specOf(ref)),
        diff: async () => {
          await (await computeOf(ref)).rows(`alter role p_${ref}_read password 'Lost-and-gone_1'`)
          const [from, to] = [ref, parent].map((ref) => ({ ref, runnerPassword: RUNNER_PASSWORD }))
          if (from && to) expect(await engine().diff({ from, to })).toContain('people')
        },
        setPassword: () => engine().setPassword(ref, 'Another-0wner_of-it'),
      }[work]()
    },
  )
})

describe('a temporary login', () => {
  const login = (ref: string, letters = 'abcdefgh') => ({
    ...{ ref, role: loginRole('cli', letters), power: 'owner' as const, password: 'A-random_1' },
    expiresAt: new Date(Date.now() + 60_000),
  })
  const allow = async () => true
  const unasked = () => Promise.reject(new Error('nobody asks for it'))

  test('calls no API, and its password is sent to Neon in the clear', async () => {
    const { role } = login(parent)
    expect(await callsOf(() => engine().logins.put(login(parent), allow))).toEqual([])
    const [found] = await (await computeOf(parent)).rows<{ password: string }>(
      `select rolpassword as password from pg_authid where rolname = '${role}'`,
    )
    expect(found?.password).toMatch(new RegExp(`^SCRAM-SHA-256\\$${SCRAM_ITERATIONS}:`))
    expect(await callsOf(() => engine().logins.end(parent, [role], unasked))).toEqual([])
    expect(await rolesLike(parent)).not.toContain(role)
  })

  test('cannot be limited to networks', async () => {
    const bound = { ...login(parent, 'networks'), networks: ['192.0.2.0/24'] }
    await expect(engine().logins.put(bound, allow)).rejects.toThrow('cannot restrict logins to networks')
    expect(await rolesLike(parent)).not.toContain(bound.role)
  })

  test('has ended with a project that vanished at Neon', async () => {
    const ref = await project('select 1')
    await engine().logins.put(login(ref), allow)
    await neon.server.vanish(neon.states.get(ref)?.projectId ?? '')
    await engine().logins.end(ref, [login(ref).role], unasked)
    await expect(engine().logins.put(login(ref), allow)).rejects.toThrow(EngineUnavailable)
  })

  test('of a paused project is not reported as ended', async () => {
    const ref = await project('select 1')
    await engine().logins.put(login(ref), allow)
    await engine().pause(ref)
    await expect(engine().logins.end(ref, [login(ref).role], unasked)).rejects.toThrow(EngineUnavailable)
    await engine().resume(ref)
    await engine().logins.end(ref, [login(ref).role], unasked)
    expect(await rolesLike(ref)).not.toContain(login(ref).role)
  })
})

describe('a read replica', () => {
  const add = (ref: string, identifier: string, fence?: Fence) => engine().replicas?.add(ref, identifier, fence)
  const removeIt = (ref: string, identifier: string, fence?: Fence) => engine().replicas?.remove(ref, identifier, fence)
  const of = (ref: string) => engine().replicas?.list({ ref, engineState: neon.states.get(ref) }) ?? []
  const endpointsOf = (ref: string) =>
    neon.server
      .branches()
      .flatMap(({ branch, replicas }) =>
        branch.id === neon.states.get(ref)?.site?.branchId
          ? Array.from(replicas.values(), ({ endpoint }) => endpoint)
          : [],
      )
  const nameOf = (ref: string) => `${ref}-rr-us-east-1-abcde`

  test('reads the data of its project, writes nothing, and is paused and removed with it', async () => {
    const ref = await project(`create table people as select 'Ada' as name`)
    const name = nameOf(ref)
    expect(await callsOf(async () => add(ref, name))).toEqual(['listProjectEndpoints', 'createProjectEndpoint'])
    const [replica] = of(ref)
    expect(replica).toMatchObject({ identifier: name, isReady: true, host: endpointsOf(ref)[0]?.host })
    const port = await neon.server.port(replica?.host ?? '')
    const login = { host: '127.0.0.1', port, user: `p_${ref}`, password: PASSWORD, database: `p_${ref}` }
    const client = new pg.Client(login)
    client.on('error', () => {})
    await client.connect()
    await query(ref, `insert into people values ('Grace')`)
    await expect.poll(async () => (await client.query('select from people')).rowCount).toBe(2)
    await expect(client.query(`insert into people values ('Edsger')`)).rejects.toMatchObject({ code: '25006' })
    await engine().pause(ref)
    expect(endpointsOf(ref)).toMatchObject([{ disabled: true }])
    await expect(client.query('select')).rejects.toThrow()
    await engine().resume(ref)
    expect(endpointsOf(ref)).toMatchObject([{ disabled: false }])
    await removeIt(ref, name)
    await removeIt(ref, name)
    expect([of(ref), endpointsOf(ref)]).toEqual([[], []])
    await add(ref, name)
    await engine().remove(ref)
    expect(namesOf(ref)).toEqual([])
  })

  test('is made once, even if answers are lost or Neon is busy or fails', async () => {
    const ref = await project('select 1')
    const name = nameOf(ref)
    neon.server.fault({ operation: 'createProjectEndpoint', status: 423 })
    neon.server.fault({ operation: 'createProjectEndpoint', status: 502 })
    neon.server.fault({ operation: 'createProjectEndpoint', status: 0, after: true })
    await expect(add(ref, name)).rejects.toThrow(EngineUnavailable)
    await expect(add(ref, name)).rejects.toThrow(EngineUnavailable)
    expect([of(ref), endpointsOf(ref)]).toMatchObject([[], [{ name }]])
    await add(ref, name)
    expect([of(ref), endpointsOf(ref)]).toMatchObject([[{ isReady: true }], [{ name }]])
    const other = `${name}2`
    neon.server.behaviour.failing.push('start_compute')
    await expect(add(ref, other)).rejects.toThrow('Neon could not start_compute')
    expect(of(ref)).toMatchObject([{ identifier: name }, { identifier: other, isReady: false }])
    await expect(add(ref, other)).rejects.toThrow('could not create the replica')
    expect([of(ref), endpointsOf(ref)]).toMatchObject([[{ identifier: name }], [{ name }]])
    await add(ref, other)
    expect(endpointsOf(ref)).toHaveLength(2)
    neon.server.fault({ operation: 'deleteProjectEndpoint', status: 0, after: true })
    await removeIt(ref, other)
    expect([of(ref), endpointsOf(ref)]).toMatchObject([[{ identifier: name }], [{ name }]])
  })

  test('is not made if Neon refuses, the attempt is overtaken or the project has vanished', async () => {
    const ref = await project('select 1')
    const name = nameOf(ref)
    neon.server.fault({ operation: 'createProjectEndpoint', status: 422 })
    await expect(add(ref, name)).rejects.toThrow(EngineRefusal)
    await expect(add(ref, name, async () => false)).rejects.toThrow(Superseded)
    expect([of(ref), endpointsOf(ref)]).toEqual([[], []])
    await add(ref, name)
    await neon.server.vanish(neon.states.get(ref)?.projectId ?? '')
    await expect(add(ref, `${name}2`)).rejects.toThrow(EngineUnavailable)
  })
})

describe('the size of a compute', () => {
  const setSize = (ref: string, size: string, fence?: Fence) => engine().sizes?.set(ref, size, fence)
  const unitsOf = (ref: string) => {
    const found = neon.server.branches().find(({ branch }) => branch.id === neon.states.get(ref)?.site?.branchId)
    return [found?.endpoint?.autoscaling_limit_min_cu, found?.endpoint?.autoscaling_limit_max_cu]
  }

  test('is the requested one, at creation or later', async () => {
    const [ref, branch] = [newRef(), newRef()]
    await engine().create({ ...specOf(ref), size: 'small' })
    expect(unitsOf(ref)).toEqual([0.5, 0.5])
    await engine().copy({ ...copyOf(branch), from: ref, to: { ...specOf(branch), size: 'medium' } })
    expect(unitsOf(branch)).toEqual([1, 1])
    expect(await callsOf(async () => setSize(branch, '12xlarge'))).toEqual(['updateProjectEndpoint'])
    expect([unitsOf(branch), unitsOf(ref)]).toEqual([
      [48, 48],
      [0.5, 0.5],
    ])
    expect((await engine().sizes?.offered())?.has('16xlarge')).toBe(false)
    await setSize(branch, 'nano')
    expect(unitsOf(branch)).toEqual([0.25, 0.25])
  })

  test('is also that of its read replicas', async () => {
    const [ref, neighbour] = [newRef(), newRef()]
    await engine().create({ ...specOf(ref), size: 'small' })
    const unitsOfReplicas = () => {
      const found = neon.server.branches().find(({ branch }) => branch.id === neon.states.get(ref)?.site?.branchId)
      return Array.from(found?.replicas.values() ?? [], ({ endpoint }) => endpoint.autoscaling_limit_max_cu)
    }
    await engine().replicas?.add(ref, `${ref}-rr-us-east-1-first`)
    await setSize(ref, 'large')
    await engine().replicas?.add(ref, `${ref}-rr-us-east-1-other`)
    expect([unitsOf(ref), unitsOfReplicas()]).toEqual([
      [2, 2],
      [2, 2],
    ])
    await engine().copy({ ...copyOf(neighbour), from: ref })
    await setSize(neighbour, 'medium')
    expect([unitsOf(neighbour), unitsOfReplicas()]).toEqual([
      [1, 1],
      [2, 2],
    ])
  })

  test('is requested until Neon is free, and again if the answer was lost', async () => {
    neon.server.fault({ operation: 'updateProjectEndpoint', status: 423 })
    neon.server.fault({ operation: 'updateProjectEndpoint', status: 429 })
    neon.server.fault({ operation: 'updateProjectEndpoint', status: 0, after: true })
    await setSize(parent, 'small')
    neon.server.behaviour.failing.push('apply_config')
    await expect(setSize(parent, 'medium')).rejects.toThrow('Neon could not apply_config')
    await setSize(parent, 'medium')
    expect(unitsOf(parent)).toEqual([1, 1])
  })

  test('does not change if Neon refuses, the attempt is overtaken or the project has vanished', async () => {
    const ref = newRef()
    await engine().create({ ...specOf(ref), size: 'small' })
    neon.server.fault({ operation: 'updateProjectEndpoint', status: 422 })
    await expect(setSize(ref, 'large')).rejects.toThrow(EngineRefusal)
    const refuse = async () => false
    expect(await callsOf(() => expect(setSize(ref, 'large', refuse)).rejects.toThrow(Superseded))).toEqual([])
    expect(unitsOf(ref)).toEqual([0.5, 0.5])
    await neon.server.vanish(neon.states.get(ref)?.projectId ?? '')
    await expect(setSize(ref, 'large')).rejects.toMatchObject({ code: '3D000' })
  })
})

describe('a database that is restored to a point in time', () => {
  const beginOf = (request: PointInTimeRequest, fence?: Fence) => engine().pointInTime?.begin(request, fence)
  const finishOf = (request: PointInTimeRequest & ProjectSpec, fence?: Fence) =>
    engine().pointInTime?.finish(request, fence)

  /** Makes a project with rows from before a moment and from after it, and the request to restore that moment. */
  async function withPast(ref?: string) {
    const own = ref ?? (await project(`create table people as select 'Ada' as name`))
    const at = new Date(Date.now() + 1)
    await query(own, `insert into people values ('Grace')`)
    return { ...specOf(own), id: crypto.randomUUID(), at }
  }
  const namesIn = async (ref: string) => {
    const found = (await parseRows(await query(ref, 'select name from people order by 1'))) as { name: string }[]
    return found.map(({ name }) => name)
  }
  const keptOf = (ref: string) => namesOf(ref).filter((name) => name.startsWith(`pilothouse-${ref}-before-`))

  test('has the data of that moment, at the same host, and admits the logins that are valid now', async () => {
    const ref = await project(`create table people as select 'Ada' as name`)
    const role = loginRole('jit', 'abcdefgh')
    const login = {
      ref,
      role,
      power: 'owner' as const,
      password: 'A-random_1',
      expiresAt: new Date(Date.now() + 60_000),
    }
    await engine().logins.put(login, async () => true)
    const request = { ...(await withPast(ref)), password: 'Another-0wner_of-it' }
    await engine().logins.end(ref, [role], async () => PASSWORD)
    await engine().setPassword(ref, request.password)
    const { site } = neon.states.get(ref) ?? {}
    expect(await callsOf(async () => beginOf(request))).toEqual(['listProjectBranches', 'restoreProjectBranch'])
    expect(await callsOf(async () => finishOf(request))).toEqual(['listProjectOperations', 'updateProjectEndpoint'])
    expect(neon.states.get(ref)).toMatchObject({ site, isReady: true, isBranch: false })
    expect(await namesIn(ref)).toEqual(['Ada'])
    await withClient(neon.connect(ref, request.password), (client) => client.query('select'))
    await expect(neon.connect(ref, 'A-random_1', role)).rejects.toMatchObject({ code: '28P01' })
    expect(await rolesLike(ref)).not.toContain(role)
    await engine().remove(ref)
    expect(namesOf(ref)).toEqual([])
  })

  test('goes back as far as Neon keeps the history, and not to before it was ready', async () => {
    const before = Date.now()
    const ref = await project('select 1')
    const now = new Date(Date.now() + 3_600_000)
    const window = async () => engine().pointInTime?.window(ref, now)
    const { earliest } = (await window()) ?? {}
    expect(earliest?.getTime()).toBeGreaterThan(before)
    const { projectId = '' } = neon.states.get(ref) ?? {}
    const found = neon.server.projects.get(projectId)
    if (!found) throw new Error('it is not there')
    found.project.history_retention_seconds = 60
    expect(await callsOf(window)).toEqual(['getProject'])
    expect(await window()).toEqual({ earliest: new Date(now.getTime() - 60_000), latest: now })
    await neon.server.vanish(projectId)
    await expect(window()).rejects.toMatchObject({ code: '3D000' })
    await expect(beginOf({ ref, id: 'x', at: now })).rejects.toMatchObject({ code: '3D000' })
  })

  test('waits while Neon is busy, and is restored once even if the answer was lost', async () => {
    const request = await withPast()
    const { ref } = request
    neon.server.fault({ operation: 'restoreProjectBranch', status: 423 })
    neon.server.fault({ operation: 'restoreProjectBranch', status: 502 })
    neon.server.fault({ operation: 'restoreProjectBranch', status: 0, after: true })
    await expect(beginOf(request)).rejects.toThrow(EngineUnavailable)
    expect(keptOf(ref)).toEqual([])
    await expect(beginOf(request)).rejects.toThrow(EngineUnavailable)
    expect(await callsOf(async () => beginOf(request))).toEqual(['listProjectBranches'])
    await finishOf(request)
    expect(await namesIn(ref)).toEqual(['Ada'])
    expect(keptOf(ref)).toEqual([`pilothouse-${ref}-before-${request.id}`])
    await finishOf(request)
    expect(await namesIn(ref)).toEqual(['Ada'])
  })

  test('is restored again from what Neon kept if Neon failed', async () => {
    const request = await withPast()
    neon.server.behaviour.failing.push('create_branch')
    await beginOf(request)
    await expect(finishOf(request)).rejects.toThrow('Neon could not create_branch')
    neon.server.fault({ operation: 'restoreProjectBranch', status: 503 })
    await expect(finishOf(request)).rejects.toThrow('injected 503')
    await finishOf(request)
    expect(await namesIn(request.ref)).toEqual(['Ada'])
    expect(keptOf(request.ref)).toHaveLength(1)
  })

  test('stays as it was if Neon does not have that moment', async () => {
    const request = { ...(await withPast()), at: new Date(0) }
    await expect(beginOf(request)).rejects.toThrow(EngineRefusal)
    expect(keptOf(request.ref)).toEqual([])
    expect(await namesIn(request.ref)).toEqual(['Ada', 'Grace'])
  })

  test('is not restored by an attempt that is overtaken', async () => {
    const request = await withPast()
    const refuse = async () => false
    expect(await callsOf(() => expect(beginOf(request, refuse)).rejects.toThrow(Superseded))).toEqual([])
    const busy = neon.server.fault({ operation: 'restoreProjectBranch', status: 423 })
    await expect(beginOf(request, async () => busy.times > 0)).rejects.toThrow(Superseded)
    expect(keptOf(request.ref)).toEqual([])
    await beginOf(request)
    expect(await callsOf(() => expect(finishOf(request, refuse)).rejects.toThrow(Superseded))).toEqual([])
    await finishOf(request)
  })

  test('may be a branch, more than once, and leaves nothing when it is removed', async () => {
    const owner = await project(`create table people as select 'Ada' as name`)
    const branch = newRef()
    await engine().copy({ ...copyOf(branch), from: owner })
    for (const _ of [1, 2]) {
      const request = await withPast(branch)
      await beginOf(request)
      await finishOf(request)
      expect(await namesIn(branch)).toEqual(['Ada'])
    }
    expect(keptOf(branch)).toHaveLength(2)
    await engine().remove(branch)
    expect(namesOf(branch)).toEqual([])
    await engine().remove(owner)
  })

  test('keeps its branches, which prevent its removal', async () => {
    const request = await withPast()
    const { ref } = request
    const branch = newRef()
    await engine().copy({ ...copyOf(branch), from: ref })
    await beginOf(request)
    await finishOf(request)
    expect(await namesIn(branch)).toEqual(['Ada', 'Grace'])
    await expect(engine().remove(ref)).rejects.toThrow('the Neon project still has 1 other branches')
    const another = newRef()
    await engine().copy({ ...copyOf(another), from: ref })
    expect(await namesIn(another)).toEqual(['Ada'])
    for (const each of [another, branch, ref]) await engine().remove(each)
    expect([...namesOf(ref), ...namesOf(branch), ...namesOf(another)]).toEqual([])
  })
})

describe('a project', () => {
  test('that vanished at Neon is unhealthy, answers that it is gone, and can be removed', async () => {
    const ref = newRef()
    await engine().create(specOf(ref))
    await neon.server.vanish(neon.states.get(ref)?.projectId ?? '')
    expect(await engine().health(ref, 5_000)).toEqual({ healthy: false, error: 'the database does not exist' })
    await expect(query(ref, 'select 1')).rejects.toThrow(EngineUnavailable)
    await expect(engine().pause(ref)).rejects.toMatchObject({ code: '3D000' })
    await expect(engine().resume(ref)).rejects.toMatchObject({ code: '3D000' })
    await engine().remove(ref)
    expect(neon.states.has(ref)).toBe(false)
  })

  test('does not remove its branches with itself', async () => {
    const [ref, branch] = [newRef(), newRef()]
    await engine().create(specOf(ref))
    await engine().copy({ from: ref, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(branch), data: true })
    await expect(engine().remove(ref)).rejects.toThrow('the Neon project still has 1 other branches')
    expect(await engine().health(ref, 5_000)).toEqual({ healthy: true })
    await engine().remove(branch)
    await engine().remove(ref)
    expect([...namesOf(ref), ...namesOf(branch)]).toEqual([])
  })
})

describe('the removal of a project', () => {
  test('finds it under a name that was changed at Neon', async () => {
    const [ref, branch] = [newRef(), newRef()]
    await engine().create(specOf(ref))
    await engine().copy({ ...copyOf(branch), from: ref })
    const { projectId = '', site } = neon.states.get(branch) ?? {}
    const { project, branches } = neon.server.projects.get(projectId) ?? {}
    const renamed = branches?.get(site?.branchId ?? '')
    if (!project || !renamed) throw new Error('they are not there')
    project.name = renamed.branch.name = 'production'
    await engine().remove(branch)
    expect([...(branches?.values() ?? [])]).not.toContain(renamed)
    await engine().remove(ref)
    expect(neon.server.projects.has(projectId)).toBe(false)
  })

  test('keeps what somebody made at Neon itself', async () => {
    const ref = newRef()
    await engine().create(specOf(ref))
    const { projectId = '' } = neon.states.get(ref) ?? {}
    const { added } = neon.server.createBranch(projectId, { name: 'by-hand', endpoint: false })
    await expect(engine().remove(ref)).rejects.toThrow('the Neon project still has 1 other branches')
    expect(await engine().health(ref, 5_000)).toEqual({ healthy: true })
    await added.compute
    await expect.poll(() => neon.server.isBusy(projectId)).toBe(false)
    neon.server.deleteBranch(projectId, added.branch.id)
    await engine().remove(ref)
    expect(neon.server.projects.has(projectId)).toBe(false)
  })

  test('accepts a branch whose Neon project is gone', async () => {
    const [ref, branch] = [newRef(), newRef()]
    await engine().create(specOf(ref))
    await engine().copy({ ...copyOf(branch), from: ref })
    await neon.server.vanish(neon.states.get(ref)?.projectId ?? '')
    await engine().remove(branch)
    expect(neon.states.has(branch)).toBe(false)
  })
})

describe('a copy', () => {
  test('is closed to the temporary logins of its parent', async () => {
    const ref = newRef()
    const login = loginRole('jit', 'abcdefgh')
    await (await computeOf(parent)).rows(
      `set session authorization pilothouse; create role ${login} login password 'Temporary-1'`,
    )
    await copyTo(ref)
    expect(
      await (await computeOf(ref)).rows(
        `select rolname from pg_roles where rolcanlogin and rolname ~ '^p_|_login_' order by 1`,
      ),
    ).toEqual([`p_${ref}`, `p_${ref}_read`, `p_${ref}_sql`, `p_${ref}_storage`].map((rolname) => ({ rolname })))
  })

  test('has no history of migrations if its parent has dropped it', async () => {
    const [owner, ref] = [await project('create table kept (); drop schema supabase_migrations cascade'), newRef()]
    await engine().copy({ ...copyOf(ref, false), from: owner })
    await query(ref, 'table kept')
  })

  test('has a history that is larger than an answer', async () => {
    const [owner, ref] = [newRef(), newRef()]
    await engine().create(specOf(owner))
    await query(
      owner,
      `insert into supabase_migrations.schema_migrations (version, statements)
         select 100 + n, array[repeat('x', 1000000)] from generate_series(1, 20) as n`,
    )
    await engine().copy({ ...copyOf(ref, false), from: owner })
    const result = await query(
      ref,
      `select count(*)::int as count, sum(length(statements[1]))::int as length from supabase_migrations.schema_migrations`,
    )
    expect(await parseRows(result)).toEqual([{ count: 20, length: 20_000_000 }])
  })

  test('is made anew if its parent ran another migration meanwhile', async () => {
    const [owner, ref] = [await project('create table people (n int)'), newRef()]
    let migrations = 0
    const migrating: Fence = async () => {
      if (!neon.states.get(ref)?.site || migrations > 0) return true
      migrations += 1
      await query(
        owner,
        `alter table people add born date; insert into supabase_migrations.schema_migrations (version) values ('1')`,
      )
      return true
    }
    const request = { ...copyOf(ref, false), from: owner }
    await expect(engine().copy(request, migrating)).rejects.toThrow(
      `a migration of ${owner} ran while its schema was copied`,
    )
    expect(namesOf(ref)).toEqual([])
    await engine().copy(request, migrating)
    await query(ref, 'select born from people')
    expect(migrations).toBe(1)
    const result = await query(ref, 'select version from supabase_migrations.schema_migrations')
    expect(await parseRows(result)).toEqual([{ version: '1' }])
  })

  test('keeps the history chosen for it over a crash', async () => {
    const [owner, ref] = [await project('create table people (n int)'), newRef()]
    const request = { ...copyOf(ref, false), from: owner }
    await expect(crashingAt(3).copy(request)).rejects.toThrow('crashed')
    await query(owner, `insert into supabase_migrations.schema_migrations (version) values ('1')`)
    await expect(engine().copy(request)).rejects.toThrow('a migration of')
    await engine().copy(request)
    await query(ref, 'table people')
  })

  test('has none of the many versions and tokens that its parent records', async () => {
    const [owner, ref] = [await project('create table kept ()'), newRef()]
    const compute = await computeOf(owner)
    await compute.rows(
      'insert into pgbouncer.removed_versions (version) select gen_random_uuid() from generate_series(1, 20001)',
      `p_${owner}`,
    )
    await engine().copy({ ...copyOf(ref), from: owner })
    const left = await (await computeOf(ref)).rows('select from pgbouncer.removed_versions', `p_${ref}`)
    expect(left).toEqual([])
  })

  test.each([
    ['in portions', '', 3],
    [
      'at once where they point at each other',
      `alter table storage.objects add before uuid references storage.objects;
       create index on storage.objects (before);
       update storage.objects set before = (select id from storage.objects limit 1)`,
      1,
    ],
  ])('has none of the many objects that its parent has: they are deleted %s', async (_, sql, portions) => {
    const owner = await project(
      `create table portions (xact text); insert into storage.buckets (id, name) values ('b', 'b')`,
    )
    const parent = await computeOf(owner)
    await parent.rows(
      `insert into storage.objects (bucket_id, name, version)
         select 'b', n::text, gen_random_uuid()::text from generate_series(1, 20001) as n;
       ${sql};
       create function public.note() returns event_trigger language plpgsql security definer as $$
         begin
           insert into public.portions select pg_current_xact_id() where current_query() like '%DELETE FROM ONLY storage.objects%';
         end $$;
       create event trigger noted on ddl_command_end when tag in ('ALTER TABLE') execute function public.note()`,
      `p_${owner}`,
    )
    const ref = newRef()
    await engine().copy({ ...copyOf(ref), from: owner })
    const inside = await computeOf(ref)
    expect(await inside.rows('select from storage.objects', `p_${ref}`)).toEqual([])
    const counted = await inside.rows('select count(distinct xact)::int as portions from public.portions', `p_${ref}`)
    expect(counted).toEqual([{ portions }])
    const off = `select from pg_trigger where tgrelid = 'storage.objects'::regclass and tgenabled = 'D'`
    expect(await inside.rows(off, `p_${ref}`)).toEqual([])
  })

  test("runs nothing that the parent's owner wrote, and keeps it", async () => {
    const owner = await project(`
      create table heard (who text, whom text);
      create function public.hear() returns trigger language plpgsql as
        $$ begin insert into public.heard values (session_user, current_user); return null; end $$;
      create trigger hear after delete on storage.objects for each row execute function public.hear();
      insert into storage.buckets (id, name) values ('b', 'b');
      insert into storage.objects (bucket_id, name, version) values ('b', 'n', gen_random_uuid()::text)`)
    const ref = newRef()
    await engine().copy({ from: owner, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(ref), data: true })
    await withClient(neon.connect(ref, PASSWORD), async (client) => {
      expect((await client.query('select * from heard')).rows).toEqual([])
      await client.query(`insert into storage.objects (bucket_id, name) values ('b', 'n'); delete from storage.objects`)
      expect((await client.query('select whom from heard')).rows).toEqual([{ whom: `p_${ref}` }])
    })
  })
})

/** Returns an engine that loses the nth note it writes and fails everything after it. */
function crashingAt(nth: number) {
  let writes = 0
  return neon.another({
    states: {
      read: async (ref) => neon.states.get(ref),
      refs: async () => [...neon.states.keys()],
      async write(ref, state) {
        writes += 1
        if (writes >= nth) throw new Error('crashed')
        if (state) neon.states.set(ref, state)
      },
    },
  })
}
