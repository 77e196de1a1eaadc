import { setTimeout as delay } from 'node:timers/promises'
import type { Backups } from '../backups/backups.ts'
import { planMoment } from '../backups/plan.ts'
import { archiveTimelineOf } from '../backups/restore.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import type { InstancePool, InstanceSpec } from '../instances/instances.ts'
import { type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'
import { requireSupported } from '../settings/apply.ts'
import { type Follower, follow, recoverAt } from './arrival.ts'

export interface ArrivalSpec
  extends InstanceSpec,
    Partial<Pick<InstanceRecord, 'settings' | 'access' | 'walDiscardedAt'>> {
  isPaused: boolean
}

/** An instance that is being created from the archive, until `finish` sets the position at which it ends. */
interface Arriving {
  untilCaughtUp(): Promise<void>
  /** Resolves to the complete, sealed instance. */
  done: Promise<PostgresInstance>
  /** Whether it was finished or canceled. */
  isEnded(): boolean
  finish(lsn: string | undefined): void
  cancel(): void
}

interface Parts {
  pool: InstancePool
  backups: Backups
  /** Time after which an arrival that has caught up is canceled unless it is finished, and limit for the finish. */
  timeoutMs?: number
}

const FOLLOW_MS = 1_000
const TIMEOUT_MS = 10 * 60_000

export type Moves = ReturnType<typeof createMoves>

/** Moves instances to other hosts and from them, through the archive that the hosts share. */
export function createMoves({ pool, backups, timeoutMs = TIMEOUT_MS }: Parts) {
  const arriving = new Map<string, Arriving>()

  /** Removes what an earlier attempt has left. An instance that was unsealed stays. */
  async function discard(name: string): Promise<void> {
    const left = arriving.get(name)
    left?.cancel()
    await left?.done.catch(() => {})
    if (pool.find(name)?.record.sealed === 'arriving') await pool.remove(name)
  }

  /** Discards an earlier attempt, and refuses a name that an instance in service has. */
  async function requireFree(name: string): Promise<void> {
    await discard(name)
    if (pool.find(name)) throw new Refused([{ setting: 'name', reason: 'an instance with this name exists already' }])
  }

  const makeSealed = (
    { isPaused, settings, access, walDiscardedAt, ...spec }: ArrivalSpec,
    fill: Parameters<InstancePool['make']>[1],
  ) =>
    pool.make(spec, fill, {
      ...{ isPaused, sealed: 'arriving', isArchived: true },
      ...(settings && { settings }),
      ...(access && { access }),
      ...(walDiscardedAt && { walDiscardedAt }),
    })

  /** Checks the size and the settings while the other host still serves the instance. */
  async function checkRecord(record: InstanceRecord): Promise<void> {
    const subject = { record, programs: pool.programsOf(record.major), paths: { socket: pool.socketOf(record.name) } }
    await requireSupported(subject, await pool.trialOf(subject))
  }

  function begin(spec: ArrivalSpec): Arriving {
    const caughtUp = Promise.withResolvers<void>()
    const end = Promise.withResolvers<string | undefined>()
    const canceled = Promise.withResolvers<never>()
    const cancellation = new AbortController()
    const { signal } = cancellation
    const archive = backups.archive.until(signal)
    let isEnded = false
    // The rejections are handled here even if no caller waits: an unhandled one would end the process.
    for (const { promise } of [caughtUp, canceled]) promise.catch(() => {})
    const complete = async (follower: Follower) => {
      do {
        await follower.catchUp()
        caughtUp.resolve()
        await Promise.race([delay(FOLLOW_MS, undefined, { ref: false }), end.promise])
      } while (!isEnded)
      await follower.finish(await end.promise)
    }
    const fill = async (data: string, record: InstanceRecord) => {
      await checkRecord(record)
      const follower = await follow({ archive, pool, record, data })
      try {
        await Promise.race([complete(follower), canceled.promise])
      } finally {
        await follower.stop()
      }
    }
    const done = makeSealed(spec, fill).catch((error) => {
      throw signal.aborted ? signal.reason : error
    })
    let timeout: NodeJS.Timeout | undefined
    const cancel = () => {
      isEnded = true
      cancellation.abort(new InstanceUnavailable('The arrival was canceled'))
      canceled.reject(signal.reason)
    }
    const limit = () => {
      clearTimeout(timeout)
      timeout = setTimeout(cancel, timeoutMs).unref()
    }
    const forget = () => {
      clearTimeout(timeout)
      arriving.delete(spec.name)
    }
    done.then(forget, (error) => {
      forget()
      caughtUp.reject(error)
    })
    return {
      async untilCaughtUp() {
        await caughtUp.promise
        if (!isEnded) limit()
      },
      done,
      isEnded: () => isEnded,
      finish(lsn) {
        isEnded = true
        limit()
        end.resolve(lsn)
      },
      cancel,
    }
  }

  const hasBackupAfter = async (name: string, at: string) =>
    (await backups.list(name)).some(({ stoppedAt }) => stoppedAt > at)

  return {
    /** Stops an instance and archives all commits; returns the position of their end. */
    async seal(name: string): Promise<{ lsn: string }> {
      const instance = pool.find(name) ?? pool.require(name)
      const { isArchived, walDiscardedAt } = instance.record
      if (!isArchived) {
        throw new Refused([{ setting: 'backup', reason: 'there is no backup of this project, which a move needs' }])
      }
      // The other host could not follow the archive across the gap, and would refuse to finish.
      if (walDiscardedAt !== undefined && !(await hasBackupAfter(name, walDiscardedAt))) {
        throw new InstanceUnavailable(`There is no backup after the gap of the archive at ${walDiscardedAt}`)
      }
      return pool.seal(instance, async (draft) => ({ lsn: await backups.flushFrom(draft) }))
    },

    async unseal(name: string): Promise<void> {
      const instance = pool.find(name) ?? pool.require(name)
      // Recorded before the server archives it, so that the next move or restore starts from this timeline.
      if (instance.record.sealed === 'arriving') await archiveTimelineOf(backups.archive, instance, instance.paths.data)
      await instance.unseal()
    },

    /** Creates the instance from the archive up to its present end, and keeps applying new WAL. */
    async receive(spec: ArrivalSpec): Promise<void> {
      const begun = arriving.get(spec.name)
      if (begun && !begun.isEnded()) return begun.untilCaughtUp()
      // A finished arrival may lack what the other host has written since.
      await requireFree(spec.name)
      const arrival = begin(spec)
      arriving.set(spec.name, arrival)
      await arrival.untilCaughtUp()
    },

    /** Creates the instance from the archive as it was at a moment. It is complete and sealed when this resolves. */
    async receiveAt(spec: ArrivalSpec, at: Date): Promise<void> {
      await requireFree(spec.name)
      const { archive } = backups
      const plan = await planMoment(archive, spec.name, at, () => true)
      await makeSealed(spec, (data, record) => recoverAt({ archive, pool, record, data }, plan))
    },

    /** Ends the arrival at `lsn`. The instance is complete and sealed when this resolves. */
    async finish(name: string, lsn: string | undefined): Promise<void> {
      const begun = arriving.get(name)
      if (!begun) throw new InstanceUnavailable(`The instance ${name} is not arriving`)
      begun.finish(lsn)
      await begun.done
    },

    /** Cancels an arrival that is under way, and does not wait for its end. */
    cancel: (name: string) => arriving.get(name)?.cancel(),

    discard,

    async close(): Promise<void> {
      await Promise.all([...arriving.keys()].map(discard))
    },
  }
}
