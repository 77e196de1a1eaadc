import { availableParallelism } from 'node:os'

/** The largest chunk that a socket reads at once. */
export const READ_BYTES = 64 * 1024
/** A result up to this size is received and sent as fast as possible. */
export const UNPACED_BYTES = 1024 * 1024

const STEP_MS = 3
/** A step that comes late moves the bytes of the time since the last one, up to this time. */
const LATE_STEP_MS_MAX = 30
/** Bytes of larger results that all sessions together move: about 10 MiB a second for each core. */
const BYTES_PER_MS = (READ_BYTES / 2 / STEP_MS) * availableParallelism()

const waiting: { bytes: number; resume: () => void }[] = []
let isRunning = false
let left = 0
let steppedAt = 0

/**
 * Waits until `bytes` of a large result may be received or sent. Postgres, this process and the client would otherwise take all
 * cores for it, and the sessions of other instances would wait.
 */
export function waitToTransfer(bytes: number): Promise<void> {
  return new Promise((resume) => {
    waiting.push({ bytes, resume })
    if (isRunning) return
    isRunning = true
    steppedAt = performance.now()
    setTimeout(step, STEP_MS)
  })
}

function step() {
  const now = performance.now()
  left = Math.min(left, 0) + Math.min(now - steppedAt, LATE_STEP_MS_MAX) * BYTES_PER_MS
  steppedAt = now
  while (left > 0 && waiting.length > 0) {
    const { bytes, resume } = waiting.shift() as (typeof waiting)[number]
    left -= bytes
    resume()
  }
  isRunning = waiting.length > 0 || left < 0
  if (isRunning) setTimeout(step, STEP_MS)
}
