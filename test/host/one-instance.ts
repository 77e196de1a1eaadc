import { type Instance, type InstanceRecord, type Instances, InstanceUnavailable } from '../../host/instances/types.ts'
import { openPool, testInstance } from './pooled-instance.ts'

/** One Postgres server that answers to several names, so that a test can have projects and the control database. */
export interface OneInstance {
  instances: Instances
  get(name: string): Instance
  /** Runs SQL as the superuser. */
  sql<Row extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<Row[]>
  /** Stops the server; the next connection starts it again. */
  sleep(): Promise<void>
  /** Delays a start of the server until the promise settles. */
  holdWake(until: Promise<unknown>): void
  uses(): number
  remove(): Promise<void>
}

export async function startOneInstance(names: readonly string[]): Promise<OneInstance> {
  const { pool, close } = await openPool()
  const server = testInstance(await pool.ensure({ name: names[0] ?? '' }))
  await server.update({ settings: { max_connections: '20' } })
  await server.restart()
  let held: Promise<unknown> | undefined
  let uses = 0

  async function wake() {
    if (server.state() === 'running') return
    await held
    held = undefined
    await server.wake()
  }
  const instanceOf = (name: string): Instance => {
    let record: InstanceRecord = { ...server.record, name }
    let logins = 0
    const checkPaused = () => {
      if (record.isPaused && logins === 0) throw new InstanceUnavailable('The project is paused')
    }
    return {
      ...server,
      name,
      get record() {
        return record
      },
      state: () => (record.isPaused ? 'paused' : held && server.state() !== 'running' ? 'starting' : server.state()),
      wake,
      async resumeByLogin(login) {
        logins += 1
        try {
          const result = await login()
          record = { ...record, isPaused: false, isWoken: true }
          return result
        } finally {
          logins -= 1
        }
      },
      async connect() {
        checkPaused()
        await wake()
        const stream = await server.connect()
        uses += 1
        stream.once('close', () => {
          uses -= 1
        })
        return stream
      },
      admin: {
        async rows<Row extends object>(text: string, values?: readonly unknown[]) {
          checkPaused()
          await wake()
          return server.admin.rows<Row>(text, values)
        },
      },
      async update(change) {
        record = { ...record, ...change }
      },
    }
  }
  const known = new Map(names.map((name) => [name, instanceOf(name)]))
  return {
    instances: { find: (name) => known.get(name), list: () => [...known.values()] },
    get(name) {
      const found = known.get(name)
      if (!found) throw new Error(`no instance ${name}`)
      return found
    },
    sql: (text, values) => server.admin.rows(text, values),
    sleep: server.sleep,
    holdWake(until) {
      held = until
    },
    uses: () => uses,
    remove: close,
  }
}
