import { Problem } from './build-problem.ts'
import { LIMITS } from './limits.ts'

/** Counts the size of a program before it is built. Throws Problem above the limit. */
export function openSize() {
  let total = 0
  function add(bytes: number): void {
    total += bytes
    if (total > LIMITS.outputBytes)
      throw new Problem(`The program is larger than ${LIMITS.outputBytes / 1024 ** 2} MiB`)
  }
  return {
    text: add,
    base64: (bytes: number) => add(4 * Math.ceil(bytes / 3)),
  }
}
export type Size = ReturnType<typeof openSize>
