import type { SchemaCache } from './types.ts'

interface Entry {
  cache: SchemaCache
  /** Time of the read, in epoch milliseconds. */
  at: number
}

/** Bound of the texts of all cached schemas. As objects they take a few times as much memory. */
const CHARACTERS_MAX = 12 * 1024 * 1024
/** Age at which a schema is read again, because some changes, such as those of server settings, do not change its version. */
const AGE_MS_MAX = 600_000

/** Schemas by project, least recently used first. */
const kept = new Map<string, Entry>()
let characters = 0

/** A project whose exposed schemas change gets a new entry. */
const keyFor = (ref: string, schemas: readonly string[]) => [ref, ...schemas].join('\0')

export function cachedSchema(ref: string, schemas: readonly string[], now: number): SchemaCache | undefined {
  const key = keyFor(ref, schemas)
  const entry = kept.get(key)
  if (!entry || now - entry.at > AGE_MS_MAX || now < entry.at) return undefined
  kept.delete(key)
  kept.set(key, entry)
  return entry.cache
}

export function keepSchema(ref: string, schemas: readonly string[], entry: Entry): void {
  const key = keyFor(ref, schemas)
  drop(key)
  kept.set(key, entry)
  characters += entry.cache.characters
  for (const oldest of kept.keys()) {
    if (characters <= CHARACTERS_MAX) return
    drop(oldest)
  }
}

function drop(key: string): void {
  characters -= kept.get(key)?.cache.characters ?? 0
  kept.delete(key)
}
