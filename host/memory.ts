import { totalmem } from 'node:os'

/** Memory that this process and its children may use: a container or a service manager may allow less than the machine has. */
export const usableMemoryBytes = (machine = totalmem(), limit = process.constrainedMemory()): number =>
  // The limit is 0 if it is unknown, and a huge number if there is none.
  Math.min(machine, limit || machine)
