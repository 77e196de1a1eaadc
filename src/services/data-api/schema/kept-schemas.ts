import type { SchemaCache } from './types.ts'

interface Entry {
  cache: SchemaCache
  /** Time of the read, in epoch milliseconds. */
  at: number
}

/** The text of all cached schemas; as objects they take a few times as much memory. */
const CHARACTERS_MAX = 12 * 1024 * 1024
/** Not every change is recorded in the database, such as one of the settings of its server. */
const AGE_MS_MAX = 600_000

/** By project, the one used last at the end. */
const kept = new Map<string, Entry>()
let characters = 0

/** Projects whose exposed schemas differ have different caches. */
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
