import { type SQL, sql } from 'drizzle-orm'
import type { PlatformCtx } from '../context.ts'

/** Time for which an isolate may use a cached row. */
const CACHE_MS = 1_000
/** Age at which rows in use are refreshed in the background, before a request has to wait for them. */
const REFRESH_AFTER_MS = 500
const REFRESH_MS_MAX = 10_000
/** Limits of one refresh statement. */
const REFRESH_ROWS_MAX = 1_000
const REFRESH_CHARACTERS_MAX = 4 * 1024 * 1024
/** Maximum number of cached misses of one project, so that requests for unknown names cannot evict all other entries. */
const MISSING_MAX = 100
/** Number of projects whose last invalidation is remembered: enough for the time that a read takes. */
const INVALIDATED_MAX = 1_000

export interface RowKey {
  /** Ref of the project that the row belongs to. */
  ref: string
  name: string
}

/** Requested keys as `w`, joined with their projects as `p`. The lateral join stops the planner from scanning all projects. */
export const wantedProjects = (wanted: readonly RowKey[]): SQL =>
  sql`json_to_recordset(${JSON.stringify(wanted)}::json) as w (ref text, name text)
    cross join lateral (select * from projects where ref = w.ref and removed_at is null limit 1) p`

interface Entry<T> {
  value: T
  /** Time of the read. `usedAt` is the time of the last request. */
  at: number
  usedAt: number
}

/** Cached entries of one project, by name. */
interface ProjectEntries<T> {
  found: Map<string, Entry<T>>
  /** Cached misses, which are not refreshed. */
  missing: Map<string, Entry<T>>
  characters: number
}

export type Reader = Pick<PlatformCtx, 'db' | 'waitUntil'>

interface Source<T extends RowKey> {
  /** Reads all keys in one statement. Keys that do not exist are left out. */
  read(reader: Reader, wanted: readonly RowKey[]): Promise<T[]>
  /** Whether the value says that the project exists but has no row of that name. */
  isMissing?(value: T): boolean
  /** Approximate size of all values of the project together. */
  charactersOf(value: T): number
  entriesMax: number
  charactersMax: number
}

export interface RowCache<T extends RowKey> {
  /** Returns undefined for a key that does not exist; such a key is looked up each time. `now` is in epoch milliseconds. */
  get(createReader: () => Reader, key: RowKey, now?: number): Promise<T | undefined>
  /** Reads the row again, for a caller that has evidence that the cached one is stale. */
  reload(reader: Reader, key: RowKey, now?: number): Promise<T | undefined>
  /** Invalidates the project's rows, so that this isolate sees a change at once. */
  invalidate(ref: string): void
}

/**
 * Caches rows that every request needs. At most twice a second, one statement (or a few, if the rows are large) refreshes all rows
 * in use. If the cache is full, the projects that were read longest ago are evicted.
 */
export function createRowCache<T extends RowKey>(source: Source<T>): RowCache<T> {
  const { read, isMissing = () => false, charactersOf, entriesMax, charactersMax } = source
  /** Ordered by the time of the last read. */
  const cached = new Map<string, ProjectEntries<T>>()
  const { record, isInvalidated, changes } = createInvalidations()
  let entries = 0
  let characters = 0
  let refreshingSince = 0

  function find({ ref, name }: RowKey): Entry<T> | undefined {
    const project = cached.get(ref)
    return project?.found.get(name) ?? project?.missing.get(name)
  }

  function store(entry: Entry<T>): void {
    const { ref, name } = entry.value
    drop(entry.value)
    const project = cached.get(ref) ?? { found: new Map(), missing: new Map(), characters: 0 }
    cached.delete(ref)
    cached.set(ref, project)
    characters -= project.characters
    project.characters = charactersOf(entry.value)
    characters += project.characters
    if (isMissing(entry.value)) storeMissing(project, entry)
    else project.found.set(name, entry)
    entries += 1
    for (const oldest of cached.keys()) {
      if (oldest === ref || (entries <= entriesMax && characters <= charactersMax)) return
      dropProject(oldest)
    }
  }

  function storeMissing({ missing }: ProjectEntries<T>, entry: Entry<T>): void {
    for (const oldest of missing.keys()) {
      if (missing.size < MISSING_MAX) break
      missing.delete(oldest)
      entries -= 1
    }
    missing.set(entry.value.name, entry)
  }

  function drop({ ref, name }: RowKey): void {
    const project = cached.get(ref)
    if (project?.found.delete(name) || project?.missing.delete(name)) entries -= 1
    if (project?.found.size === 0 && project.missing.size === 0) dropProject(ref)
  }

  function dropProject(ref: string): void {
    const project = cached.get(ref)
    if (!project) return
    entries -= project.found.size + project.missing.size
    characters -= project.characters
    cached.delete(ref)
  }

  /** Evicts entries that no request has used. Returns the keys of the rest, grouped by refresh statement. */
  function evictUnused(now: number): RowKey[][] {
    const parts: RowKey[][] = []
    let charactersLeft = 0
    for (const [ref, { found, missing, characters }] of cached) {
      for (const [name, { at }] of missing) if (now - at >= CACHE_MS) drop({ ref, name })
      charactersLeft -= characters
      for (const [name, { usedAt }] of found) {
        const part = parts.at(-1)
        if (now - usedAt >= CACHE_MS) drop({ ref, name })
        else if (part && charactersLeft > 0 && part.length < REFRESH_ROWS_MAX) part.push({ ref, name })
        else {
          parts.push([{ ref, name }])
          charactersLeft = REFRESH_CHARACTERS_MAX - characters
        }
      }
    }
    return parts
  }

  async function refresh(reader: Reader, at: number): Promise<void> {
    try {
      for (const part of evictUnused(at)) await refreshPart(reader, part, at)
    } catch {
      // A request that needs an expired entry reads it again and reports the failure.
    } finally {
      refreshingSince = 0
    }
  }

  async function refreshPart(reader: Reader, part: readonly RowKey[], at: number): Promise<void> {
    const before = changes()
    const values = await read(reader, part)
    const byKey = new Map(values.map((value) => [`${value.ref}/${value.name}`, value]))
    for (const key of part) {
      const entry = find(key)
      if (!entry || isInvalidated(key.ref, before)) continue
      const value = byKey.get(`${key.ref}/${key.name}`)
      if (value) store({ value, at, usedAt: entry.usedAt })
      else drop(key)
    }
  }

  async function reload(reader: Reader, key: RowKey, at = Date.now()): Promise<T | undefined> {
    const before = changes()
    const [value] = await read(reader, [key])
    if (isInvalidated(key.ref, before)) return value
    if (value) store({ value, at, usedAt: at })
    else drop(key)
    return value
  }

  async function get(createReader: () => Reader, key: RowKey, now = Date.now()): Promise<T | undefined> {
    const found = find(key)
    // Each request reads for itself: in workerd it must not await a promise of another request.
    if (!found || now - found.at >= CACHE_MS || now < found.at) return reload(createReader(), key, now)
    found.usedAt = now
    if (now - found.at >= REFRESH_AFTER_MS && now - refreshingSince > REFRESH_MS_MAX) {
      refreshingSince = now
      const reader = createReader()
      reader.waitUntil(refresh(reader, now))
    }
    return found.value
  }

  function invalidate(ref: string): void {
    record(ref)
    dropProject(ref)
  }

  return { get, reload, invalidate }
}

/** Records when each project was invalidated, as a sequence number. The result of a read that started before is not cached. */
function createInvalidations() {
  const byRef = new Map<string, number>()
  let changes = 0
  /** Invalidations up to this number are no longer known by project. */
  let unknownUntil = 0
  return {
    changes: (): number => changes,
    record(ref: string): void {
      changes += 1
      byRef.delete(ref)
      byRef.set(ref, changes)
      for (const [oldest, change] of byRef) {
        if (byRef.size <= INVALIDATED_MAX) return
        byRef.delete(oldest)
        unknownUntil = change
      }
    },
    isInvalidated: (ref: string, since: number): boolean => (byRef.get(ref) ?? unknownUntil) > since,
  }
}
