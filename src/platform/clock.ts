import { AsyncLocalStorage } from 'node:async_hooks'

/** Fixed time of one request, in epoch milliseconds. Only the entry point of the tests sets it. */
export const fixedTime = new AsyncLocalStorage<number>()

/** The time in epoch milliseconds. */
export const epochMs = (): number => fixedTime.getStore() ?? Date.now()
