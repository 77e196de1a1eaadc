import { type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../env.ts'

/** So long may an isolate that saw a row go by what it was. */
const KEPT_MS = 1_000
/** Older ones that are in use are read again together, before anybody has to wait. */
const RENEWED_MS = 500
const RENEWAL_MS_MAX = 10_000

export interface Named {
  /** Of the project that it belongs to. */
  ref: string
  name: string
}

/** What is wanted, as `w`, with its projects, as `p`. One by one: planners take so few for many, and would read them all. */
export const wantedProjects = (wanted: readonly Named[]): SQL =>
  sql`json_to_recordset(${JSON.stringify(wanted)}::json) as w (ref text, name text)
    cross join lateral (select * from projects where ref = w.ref and removed_at is null limit 1) p`

interface Entry<T> {
  value: T
  /** When it was read, and when last asked for. */
  at: number
  usedAt: number
}

export type Reader = Pick<SystemCtx, 'db' | 'waitUntil'>

interface Source<T extends Named> {
  /** All in one statement; what does not exist is left out. */
  read(reader: Reader, wanted: readonly Named[]): Promise<T[]>
  entriesMax: number
}

export interface Kept<T extends Named> {
  /** Undefined for what does not exist, which is looked up each time. `now` in epoch milliseconds. */
  open(createReader: () => Reader, key: Named, now?: number): Promise<T | undefined>
  /** For who has met what speaks against the one that is kept. */
  openAnew(reader: Reader, key: Named, now?: number): Promise<T | undefined>
  /** For who has changed something of the project: this isolate goes by the change at once. */
  forget(ref: string): void
}

/** Rows that every request needs: one statement for all that are in use, twice a second at most. */
export function createKept<T extends Named>({ read, entriesMax }: Source<T>): Kept<T> {
  const kept = new Map<string, Map<string, Entry<T>>>()
  let size = 0
  let renewingSince = 0
  /** Counts what was forgotten: a read that began before says nothing any more. */
  let changes = 0

  function keep(entry: Entry<T>): void {
    const { ref, name } = entry.value
    if (size >= entriesMax) {
      kept.clear()
      size = 0
    }
    const ofProject = kept.get(ref) ?? new Map<string, Entry<T>>()
    if (!ofProject.has(name)) size += 1
    kept.set(ref, ofProject.set(name, entry))
  }

  function drop({ ref, name }: Named): void {
    const ofProject = kept.get(ref)
    if (ofProject?.delete(name)) size -= 1
    if (ofProject?.size === 0) kept.delete(ref)
  }

  function dropUnused(now: number): Named[] {
    const inUse: Named[] = []
    for (const [ref, ofProject] of kept) {
      for (const [name, { usedAt }] of ofProject) {
        if (now - usedAt < KEPT_MS) inUse.push({ ref, name })
        else drop({ ref, name })
      }
    }
    return inUse
  }

  async function renew(reader: Reader, at: number): Promise<void> {
    try {
      const before = changes
      const inUse = dropUnused(at)
      const values = await read(reader, inUse)
      if (changes !== before) return
      const byKey = new Map(values.map((value) => [`${value.ref}/${value.name}`, value]))
      for (const key of inUse) {
        const value = byKey.get(`${key.ref}/${key.name}`)
        const entry = kept.get(key.ref)?.get(key.name)
        if (value && entry) keep({ value, at, usedAt: entry.usedAt })
        else if (entry) drop(key)
      }
    } catch {
      // Whoever needs one that has grown too old reads it and is told of the failure.
    } finally {
      renewingSince = 0
    }
  }

  async function openAnew(reader: Reader, key: Named, at = Date.now()): Promise<T | undefined> {
    const before = changes
    const [value] = await read(reader, [key])
    if (changes !== before) return value
    if (value) keep({ value, at, usedAt: at })
    else drop(key)
    return value
  }

  async function open(createReader: () => Reader, key: Named, now = Date.now()): Promise<T | undefined> {
    const found = kept.get(key.ref)?.get(key.name)
    // Each reads for itself, as one request must not wait for what another awaits.
    if (!found || now - found.at >= KEPT_MS || now < found.at) return openAnew(createReader(), key, now)
    found.usedAt = now
    if (now - found.at >= RENEWED_MS && now - renewingSince > RENEWAL_MS_MAX) {
      renewingSince = now
      const reader = createReader()
      reader.waitUntil(renew(reader, now))
    }
    return found.value
  }

  function forget(ref: string): void {
    changes += 1
    size -= kept.get(ref)?.size ?? 0
    kept.delete(ref)
  }

  return { open, openAnew, forget }
}
