import { type SQL, sql } from 'drizzle-orm'
import type { PlatformCtx } from '../context.ts'

/** So long may an isolate that saw a row go by what it was. */
const KEPT_MS = 1_000
/** Older ones that are in use are read again together, before anybody has to wait. */
const RENEWED_MS = 500
const RENEWAL_MS_MAX = 10_000
/** In one statement. */
const RENEWED_MAX = 1_000
const RENEWED_CHARACTERS_MAX = 4 * 1024 * 1024
/** Of one project: whoever asks for names that it does not have pushes out no more than these. */
const MISSING_MAX = 100
/** For longer than any read takes, it is known of so many projects when they were forgotten. */
const FORGOTTEN_MAX = 1_000

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

/** What is kept of one project, by name. */
interface Shelf<T> {
  found: Map<string, Entry<T>>
  /** Not renewed. */
  missing: Map<string, Entry<T>>
  characters: number
}

export type Reader = Pick<PlatformCtx, 'db' | 'waitUntil'>

interface Source<T extends Named> {
  /** All in one statement; what does not exist is left out. */
  read(reader: Reader, wanted: readonly Named[]): Promise<T[]>
  /** Whether a project was found that has nothing of the name. */
  isMissing?(value: T): boolean
  /** About as many as all values of the project hold together. */
  charactersOf(value: T): number
  entriesMax: number
  charactersMax: number
}

export interface Kept<T extends Named> {
  /** Undefined for what does not exist, which is looked up each time. `now` in epoch milliseconds. */
  open(createReader: () => Reader, key: Named, now?: number): Promise<T | undefined>
  /** For who has met what speaks against the one that is kept. */
  openAnew(reader: Reader, key: Named, now?: number): Promise<T | undefined>
  /** For who has changed something of the project: this isolate goes by the change at once. */
  forget(ref: string): void
}

/**
 * Rows that every request needs: one statement for all that are in use, twice a second at most, or a few where they are
 * large. Of what is too much, the projects go that were read longest ago.
 */
export function createKept<T extends Named>(source: Source<T>): Kept<T> {
  const { read, isMissing = () => false, charactersOf, entriesMax, charactersMax } = source
  /** Those that were read last are last. */
  const kept = new Map<string, Shelf<T>>()
  const { note, isForgotten, changes } = createForgotten()
  let entries = 0
  let characters = 0
  let renewingSince = 0

  function find({ ref, name }: Named): Entry<T> | undefined {
    const shelf = kept.get(ref)
    return shelf?.found.get(name) ?? shelf?.missing.get(name)
  }

  function keep(entry: Entry<T>): void {
    const { ref, name } = entry.value
    drop(entry.value)
    const shelf = kept.get(ref) ?? { found: new Map(), missing: new Map(), characters: 0 }
    kept.delete(ref)
    kept.set(ref, shelf)
    characters -= shelf.characters
    shelf.characters = charactersOf(entry.value)
    characters += shelf.characters
    if (isMissing(entry.value)) keepMissing(shelf, entry)
    else shelf.found.set(name, entry)
    entries += 1
    for (const oldest of kept.keys()) {
      if (oldest === ref || (entries <= entriesMax && characters <= charactersMax)) return
      dropProject(oldest)
    }
  }

  function keepMissing({ missing }: Shelf<T>, entry: Entry<T>): void {
    for (const oldest of missing.keys()) {
      if (missing.size < MISSING_MAX) break
      missing.delete(oldest)
      entries -= 1
    }
    missing.set(entry.value.name, entry)
  }

  function drop({ ref, name }: Named): void {
    const shelf = kept.get(ref)
    if (shelf?.found.delete(name) || shelf?.missing.delete(name)) entries -= 1
    if (shelf?.found.size === 0 && shelf.missing.size === 0) dropProject(ref)
  }

  function dropProject(ref: string): void {
    const shelf = kept.get(ref)
    if (!shelf) return
    entries -= shelf.found.size + shelf.missing.size
    characters -= shelf.characters
    kept.delete(ref)
  }

  /** What nobody has asked for goes; the rest in as many parts as statements are to be. */
  function dropUnused(now: number): Named[][] {
    const parts: Named[][] = []
    let room = 0
    for (const [ref, { found, missing, characters }] of kept) {
      for (const [name, { at }] of missing) if (now - at >= KEPT_MS) drop({ ref, name })
      room -= characters
      for (const [name, { usedAt }] of found) {
        const part = parts.at(-1)
        if (now - usedAt >= KEPT_MS) drop({ ref, name })
        else if (part && room > 0 && part.length < RENEWED_MAX) part.push({ ref, name })
        else {
          parts.push([{ ref, name }])
          room = RENEWED_CHARACTERS_MAX - characters
        }
      }
    }
    return parts
  }

  async function renew(reader: Reader, at: number): Promise<void> {
    try {
      for (const part of dropUnused(at)) await renewPart(reader, part, at)
    } catch {
      // Whoever needs one that has grown too old reads it and is told of the failure.
    } finally {
      renewingSince = 0
    }
  }

  async function renewPart(reader: Reader, part: readonly Named[], at: number): Promise<void> {
    const before = changes()
    const values = await read(reader, part)
    const byKey = new Map(values.map((value) => [`${value.ref}/${value.name}`, value]))
    for (const key of part) {
      const entry = find(key)
      if (!entry || isForgotten(key.ref, before)) continue
      const value = byKey.get(`${key.ref}/${key.name}`)
      if (value) keep({ value, at, usedAt: entry.usedAt })
      else drop(key)
    }
  }

  async function openAnew(reader: Reader, key: Named, at = Date.now()): Promise<T | undefined> {
    const before = changes()
    const [value] = await read(reader, [key])
    if (isForgotten(key.ref, before)) return value
    if (value) keep({ value, at, usedAt: at })
    else drop(key)
    return value
  }

  async function open(createReader: () => Reader, key: Named, now = Date.now()): Promise<T | undefined> {
    const found = find(key)
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
    note(ref)
    dropProject(ref)
  }

  return { open, openAnew, forget }
}

/** When each project was forgotten, counted in changes: a read that began before says nothing of it any more. */
function createForgotten() {
  const byRef = new Map<string, number>()
  let changes = 0
  /** Up to here it is not known any more whose they were. */
  let unknownUntil = 0
  return {
    changes: (): number => changes,
    note(ref: string): void {
      changes += 1
      byRef.delete(ref)
      byRef.set(ref, changes)
      for (const [oldest, change] of byRef) {
        if (byRef.size <= FORGOTTEN_MAX) return
        byRef.delete(oldest)
        unknownUntil = change
      }
    },
    isForgotten: (ref: string, since: number): boolean => (byRef.get(ref) ?? unknownUntil) > since,
  }
}
