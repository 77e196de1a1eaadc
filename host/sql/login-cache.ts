import { BoundedMap } from '../../src/platform/bounded-map.ts'
import type { Caller, CheckedLogin, Gateway } from '../gateway/gateway.ts'
import type { Target } from './target.ts'

const ENTRIES_MAX = 1_000
const TTL_MS = 10_000

/** Caches successful logins for some seconds: checking a password takes milliseconds of CPU, by design. */
export function cacheLogins(authenticate: Gateway['authenticate']) {
  const logins = new BoundedMap<string, { until: number; login: Promise<CheckedLogin> }>(ENTRIES_MAX)

  async function check(target: Target, caller: Caller): Promise<void> {
    const key = `${target.login}\0${caller.address}\0${caller.isSecure}`
    const known = logins.get(key)
    if (!known || known.until <= performance.now()) return void (await add(key, target, caller))
    const login = await known.login
    await login.recheck().catch((error) => {
      if (logins.get(key) === known) logins.delete(key)
      throw error
    })
  }

  function add(key: string, { name, role, password }: Target, caller: Caller): Promise<CheckedLogin> {
    const entry = { until: performance.now() + TTL_MS, login: authenticate(name, role, password, caller) }
    logins.set(key, entry)
    entry.login.catch(() => void (logins.get(key) === entry && logins.delete(key)))
    return entry.login
  }

  function evict(name: string) {
    for (const key of logins.keys()) if (key.startsWith(`${name}\0`)) logins.delete(key)
  }
  return { check, evict }
}
