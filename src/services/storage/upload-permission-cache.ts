import type { Caller } from './database.ts'
import type { Incoming } from './incoming-upload.ts'
import type { Storage } from './request.ts'
import type { Place } from './statements/object-rows.ts'
import { boundsOf, type Rules } from './upload-bounds.ts'

/** More would be sent in vain where the caller is refused after all. */
export const BYTES_MAX = 128 * 1024
const KEPT_MS = 60_000
const ENTRIES_MAX = 10_000
/** Of what is kept of each. */
const CHARACTERS_MAX = 2_000

/** What is to be written. */
export interface Upload {
  storage: Storage
  caller: Caller
  place: Place
  upsert: boolean
  /** A form tells none before its end, and policies may want to know it. */
  isSizeTold: boolean
}

interface LetIn {
  rules: Rules
  until: number
}

/** By what they did and where. */
const entries = new Map<string, LetIn>()

const keyOf = ({ storage, caller, place, upsert, isSizeTold }: Upload) =>
  JSON.stringify([storage.project.ref, place.bucketId, caller.role, caller.userId, upsert, isSizeTold])

const nowOf = ({ storage }: Upload) => storage.ctx.now().getTime()

/**
 * The rules of the bucket, where a caller has written there lately and now sends few bytes that they allow: these need not wait for
 * a question, as his policies and the rules decide when the row is written. Who was refused is asked first again.
 */
export function rulesForLetIn(upload: Upload, { description, sizeMax }: Incoming): Rules | undefined {
  const { rules, until } = entries.get(keyOf(upload)) ?? {}
  if (!rules || sizeMax === undefined || nowOf(upload) > (until ?? 0)) return undefined
  const bounds = boundsOf(upload.storage, rules, upload.place.name)
  if (sizeMax > Math.min(BYTES_MAX, bounds.sizeMax)) return undefined
  // A form may say of which type they are when they have been sent.
  if (rules.allowed_mime_types && !upload.isSizeTold) return undefined
  try {
    bounds.check(description)
    return rules
  } catch {
    return undefined
  }
}

export function noteLetIn(upload: Upload, rules: Rules): void {
  const key = keyOf(upload)
  entries.delete(key)
  if (key.length + JSON.stringify(rules).length > CHARACTERS_MAX) return
  entries.set(key, { rules, until: nowOf(upload) + KEPT_MS })
  for (const oldest of entries.keys()) {
    if (entries.size <= ENTRIES_MAX) return
    entries.delete(oldest)
  }
}

export const forgetLetIn = (upload: Upload): boolean => entries.delete(keyOf(upload))
