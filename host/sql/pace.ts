import { availableParallelism } from 'node:os'

/** The largest chunk that a socket reads at once. */
export const READ_BYTES = 64 * 1024
/** A result up to this size is received and sent as fast as possible. */
export const UNPACED_BYTES = 1024 * 1024

const STEP_MS = 3
/** Bytes of larger results that all sessions together move in one step: about 10 MiB a second for each core. */
const STEP_BYTES = (READ_BYTES / 2) * availableParallelism()

const waiting: { bytes: number; resume: () => void }[] = []
let isRunning = false
let left = 0

/**
 * Waits until `bytes` of a large result may be received or sent. Postgres, this process and the client would otherwise take all
 * cores for it, and the sessions of other instances would wait.
 */
export function turn(bytes: number): Promise<void> {
  return new Promise((resume) => {
    waiting.push({ bytes, resume })
    if (!isRunning) setTimeout(step, STEP_MS)
    isRunning = true
  })
}

function step() {
  left = Math.min(left, 0) + STEP_BYTES
  while (left > 0 && waiting.length > 0) {
    const { bytes, resume } = waiting.shift() as (typeof waiting)[number]
    left -= bytes
    resume()
  }
  isRunning = waiting.length > 0 || left < 0
  if (isRunning) setTimeout(step, STEP_MS)
}
