import { AsyncLocalStorage } from 'node:async_hooks'

/** Epoch milliseconds that hold for everything one request does. The entry point of the tests sets it, and nothing in the product. */
export const fixedTime = new AsyncLocalStorage<number>()

/** The time in epoch milliseconds. */
export const epochMs = (): number => fixedTime.getStore() ?? Date.now()
