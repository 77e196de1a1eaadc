import type { Bindings } from '../env.ts'
import { askPrograms } from './ask.ts'
import { type Alive, proofOf } from './protocol.ts'
import { noteEnd } from './suspects.ts'

/** Who answers nothing for so long has been ended by then. */
const ASKED_MS_MAX = 8_000
/** While nothing answers, so often somebody asks. */
const ASKED_AGAIN_MS = 50

/** When the process that was last met began, and whether nothing answers in its place. */
let since = 0
let isDown = false
let askedAt = 0

/** Whether the process that had a call of that time has ended. All calls that it had tell of one end. */
export async function hasEnded(bindings: Bindings, at: number): Promise<boolean> {
  const met = await meet(bindings)
  if (!isDown && isAnother(met, at)) noteEnd()
  isDown = !met
  if (met) since = met.since
  return !met || met.since > at
}

export const isAlive = async (bindings: Bindings): Promise<boolean> => !(await hasEnded(bindings, Date.now()))

const isAnother = (met: Alive | undefined, at: number): boolean =>
  met?.since !== since && (!met || since > 0 || met.since > at)

async function meet(bindings: Bindings): Promise<Alive | undefined> {
  const late = scheduler.wait(ASKED_MS_MAX).then(() => undefined)
  const met = await Promise.race([askPrograms<Alive>(bindings, 'alive'), late]).catch(() => undefined)
  return met?.proof === (await proofOf(bindings.PROGRAMS_KEY ?? '')) ? met : undefined
}

/** Whether a call would reach nobody, as far as is known without asking for each. */
export async function isKnownDown(bindings: Bindings): Promise<boolean> {
  if (!isDown) return false
  const now = Date.now()
  if (now - askedAt < ASKED_AGAIN_MS) return true
  askedAt = now
  return !(await isAlive(bindings))
}
