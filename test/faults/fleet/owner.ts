import { setTimeout as delay } from 'node:timers/promises'
import { until } from '../../support/wire/installation.ts'
import type { Random } from '../random.ts'
import type { Fleet } from './installation.ts'
import { type Ledger, newLedger } from './ledger.ts'

/** Limit for the time in which all work ends after the last kill. */
export const SETTLE_MS_MAX = 60_000
/** Time limit for a request or its work while processes are killed: each kill may start the work again. */
const PATIENCE_MS = 150_000
const RETRY_MS = 250

const OPERATIONS = [
  ...(['write', 'branch', 'pause', 'resize', 'back up', 'rewind', 'reset', 'push', 'remove branch'] as const),
  ...(['upgrade', 'move'] as const),
]
export type Operation = (typeof OPERATIONS)[number]

interface Person {
  organization: string
  random: Random
  onNote(text: string): void
}

/** Makes an owner of a project who repeats each request until it is acknowledged, and records the acknowledgement. */
export function createOwner(fleet: Fleet, { organization, random, onNote }: Person) {
  const { admin, call, rows } = fleet
  const ledgers: Ledger[] = []
  const failures: string[] = []
  let next = 1

  /** Repeats a request until an answer says that it was done, or that there is nothing to do. */
  async function repeatUntilDone(what: string, method: string, path: string, body?: object): Promise<unknown> {
    let last = ''
    const found = await until(what, PATIENCE_MS, async () => {
      const reply = await call(method, path, body).catch(() => undefined)
      if (reply && reply.status < 300) return { body: reply.body }
      last = JSON.stringify(reply)
      if (reply && (reply.status === 500 || (reply.status === 503 && !reply.isRetryable)))
        failures.push(`${what}: ${last}`)
      // The request was done and its answer was lost, or it is not possible now: the caller checks the state.
      if (reply && [400, 404, 409].includes(reply.status)) return { body: undefined }
      await delay(RETRY_MS)
      return undefined
    }).catch((error) => {
      throw new Error(`${what}: ${last}`, { cause: error })
    })
    return found.body
  }

  /** Waits until no work on the project is open. */
  const untilSettled = (ref: string) =>
    until(`${ref} settles`, PATIENCE_MS, async () => {
      const [found] = await rows<{ open: number }>(
        `select count(*)::int as open from project_tasks where project_ref = $1 and state in ('pending', 'running')`,
        [ref],
      )
      return found?.open === 0 ? true : undefined
    })

  async function write(ledger: Ledger): Promise<void> {
    const n = next++
    const sentAt = Date.now()
    const query = `create table if not exists kept (n int primary key); insert into kept values (${n}) on conflict do nothing`
    const done = await repeatUntilDone(`insert ${n}`, 'POST', `/v1/projects/${ledger.ref}/database/query`, { query })
    if (done !== undefined) ledger.rows.push({ n, sentAt, acknowledgedAt: Date.now() })
  }

  async function create(): Promise<Ledger> {
    const name = `fleet-${crypto.randomUUID()}`
    const body = {
      ...{ name, organization_slug: organization, db_pass: 'correct horse battery staple' },
      // The older version makes an upgrade possible.
      postgres_engine: '17',
    }
    const made = (await repeatUntilDone('create', 'POST', '/v1/projects', body)) as { ref: string } | undefined
    if (!made) throw new Error('the project was refused')
    const ledger = newLedger(made.ref)
    ledgers.push(ledger)
    await untilSettled(made.ref)
    return ledger
  }

  async function branch(parent: Ledger): Promise<Ledger | undefined> {
    const rowsBefore = [...parent.rows]
    const body = { branch_name: `b-${crypto.randomUUID()}`, with_data: true }
    const made = await repeatUntilDone('branch', 'POST', `/v1/projects/${parent.ref}/branches`, body)
    const { project_ref: ref } = (made ?? {}) as { project_ref?: string }
    if (!ref) return undefined
    const ledger: Ledger = { ...newLedger(ref), rows: rowsBefore, restored: [...parent.restored] }
    ledgers.push(ledger)
    await untilSettled(ref)
    return ledger
  }

  async function rewind(ledger: Ledger): Promise<void> {
    const backups = `/v1/projects/${ledger.ref}/database/backups`
    await repeatUntilDone('back up', 'POST', `${backups}/restore-point`, { name: `p${next++}` })
    await untilSettled(ledger.ref)
    await write(ledger)
    await delay(1_100)
    const to = Math.floor(Date.now() / 1000)
    await delay(1_100)
    await write(ledger)
    const askedAt = Date.now()
    const before = await tasksOf(ledger.ref, 'restore_moment')
    await repeatUntilDone('rewind', 'POST', `${backups}/restore-pitr`, { recovery_time_target_unix: to })
    await untilSettled(ledger.ref)
    // Without an answer, the restore may or may not have started.
    const after = await tasksOf(ledger.ref, 'restore_moment')
    if (after > before) ledger.restored.push({ to: to * 1000, askedAt })
  }

  /**
   * Moves a project to the other host. The command waits for the end, and may itself be killed; the work continues
   * without it.
   */
  async function move(ref: string): Promise<void> {
    const host = await until(`host of ${ref}`, PATIENCE_MS, async () => {
      const [found] = await rows<{ host: string }>(
        `select engine_state ->> 'host' as host from projects where ref = $1`,
        [ref],
      )
      return found?.host
    })
    const to = host === 'local' ? 'second' : 'local'
    await admin('project', 'move', ref, to).catch((error: Error) => onNote(`${ref} move: ${error.message}`))
  }

  const tasksOf = (ref: string, kind: string): Promise<number> =>
    until(`tasks of ${ref}`, PATIENCE_MS, async () => {
      const [found] = await rows<{ count: number }>(
        `select count(*)::int as count from project_tasks where project_ref = $1 and kind = $2 and state = 'done'`,
        [ref, kind],
      )
      return found?.count
    })

  /** Performs an operation on a project, or on a branch of it if there is one. */
  async function perform(operation: Operation, parent: Ledger, branches: Ledger[]): Promise<void> {
    const { ref } = parent
    const living = branches.filter(({ isRemoved }) => !isRemoved).at(-1)
    if (operation === 'write') return write(parent)
    if (operation === 'branch') {
      const made = await branch(parent)
      if (made) branches.push(made)
    } else if (operation === 'pause') {
      await repeatUntilDone('pause', 'POST', `/v1/projects/${ref}/pause`)
      await untilSettled(ref)
      await repeatUntilDone('restore', 'POST', `/v1/projects/${ref}/restore`)
    } else if (operation === 'resize') {
      const addon_variant = random.pick(['ci_micro', 'ci_small'])
      const body = { addon_type: 'compute_instance', addon_variant }
      await repeatUntilDone('resize', 'PATCH', `/v1/projects/${ref}/billing/addons`, body)
    } else if (operation === 'back up') {
      const name = `p${next++}`
      await repeatUntilDone('back up', 'POST', `/v1/projects/${ref}/database/backups/restore-point`, { name })
    } else if (operation === 'rewind') await rewind(parent)
    else if (operation === 'reset' && living) {
      await repeatUntilDone('reset', 'POST', `/v1/branches/${living.ref}/reset`, {})
      await untilSettled(living.ref)
      // The branch has the rows that the parent has, or had when the operation started.
      living.rows = []
    } else if (operation === 'push' && living) {
      await repeatUntilDone('push', 'POST', `/v1/branches/${living.ref}/push`, {})
      await untilSettled(living.ref)
    } else if (operation === 'upgrade') {
      await repeatUntilDone('upgrade', 'POST', `/v1/projects/${ref}/upgrade`, { target_version: '18' })
    } else if (operation === 'move') await move(ref)
    else if (operation === 'remove branch' && living) {
      await repeatUntilDone('remove branch', 'DELETE', `/v1/branches/${living.ref}?force=true`)
      living.isRemoved = true
    }
    await untilSettled(ref)
  }

  return {
    ledgers,
    failures,
    /** Performs these operations, or each once in a random order, and then others until `isOver`. */
    async work(
      operations: readonly Operation[] = random.shuffle(OPERATIONS),
      isOver: () => boolean = () => true,
    ): Promise<void> {
      const parent = await create()
      const branches: Ledger[] = []
      const todo = [...operations]
      do {
        for (const operation of todo) {
          onNote(`${parent.ref} ${operation}`)
          await perform(operation, parent, branches)
          await write(parent)
        }
        todo.splice(0, todo.length, random.pick(OPERATIONS))
      } while (!isOver())
    },
  }
}
