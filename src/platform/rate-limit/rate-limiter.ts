import { DurableObject } from 'cloudflare:workers'
import type { Bindings } from '../bindings.ts'
import type { Decision, Rule } from './rule.ts'

interface Window {
  startedAt: number
  count: number
}

/** The decision that restricts the client more: the one that refuses, then the one with fewer requests left, then the one that resets later. */
const stricter = (a: Decision, b: Decision): Decision =>
  (Number(a.allowed) - Number(b.allowed) || a.remaining - b.remaining || b.resetMs - a.resetMs) <= 0 ? a : b

/**
 * Rate limits of one caller and scope: fixed windows by rule, in memory.
 * A timer keeps the object in memory until its last window has ended, as eviction would reset the quota.
 */
export class RateLimiter extends DurableObject<Bindings> {
  readonly #windows = new Map<string, Window>()
  #awakeUntil = 0

  /** Counts a request against every rule, or against none if one is exhausted. `now` is the time of the calling isolate. */
  take(rules: readonly Rule[], now: number): Decision {
    const open = rules.map((rule) => ({ rule, window: this.#window(rule, now) }))
    const allowed = open.every(({ rule, window }) => window.count < rule.requests)
    const decisions = open.map(({ rule, window }) => {
      if (allowed) window.count += 1
      return {
        allowed: allowed || window.count < rule.requests,
        limit: rule.requests,
        remaining: Math.max(0, rule.requests - window.count),
        windowMs: rule.windowMs,
        resetMs: window.startedAt + rule.windowMs - now,
      }
    })
    this.#stayAwake(Math.max(...decisions.map(({ resetMs }) => resetMs)))
    return { ...decisions.reduce(stricter), allowed }
  }

  #window({ name, windowMs }: Rule, now: number): Window {
    const known = this.#windows.get(name)
    // A window far in the future comes from an isolate with a wrong clock, and must not refuse callers until then.
    if (known && Math.abs(now - known.startedAt) < windowMs) return known
    const window = { startedAt: now, count: 0 }
    this.#windows.set(name, window)
    return window
  }

  #stayAwake(forMs: number): void {
    const until = Date.now() + forMs
    if (until <= this.#awakeUntil) return
    this.#awakeUntil = until + 1000
    setTimeout(() => {}, this.#awakeUntil - Date.now())
  }
}
