import type { Caller, Storage } from './database.ts'
import type { IncomingUpload } from './incoming-upload.ts'
import type { Place } from './statements/object-rows.ts'
import { boundsOf, type Rules } from './upload-bounds.ts'

/** Larger uploads are authorized first, so that a refused caller does not send them in vain. */
export const SMALL_UPLOAD_BYTES_MAX = 128 * 1024
const LIFETIME_MS = 60_000
const ENTRIES_MAX = 10_000
/** Characters per entry. */
const CHARACTERS_MAX = 2_000

/** An upload that a caller asks for. */
export interface RequestedUpload {
  storage: Storage
  caller: Caller
  place: Place
  upsert: boolean
  /** Whether the size is known before the bytes, so that policies can read it. That of a form is known only at its end. */
  isSizeKnown: boolean
}

interface Permission {
  rules: Rules
  until: number
}

/** Permissions by project, bucket, caller and kind of upload. */
const entries = new Map<string, Permission>()

const keyOf = ({ storage, caller, place, upsert, isSizeKnown }: RequestedUpload) =>
  JSON.stringify([storage.project.ref, place.bucketId, caller.role, caller.userId, upsert, isSizeKnown])

const nowOf = ({ storage }: RequestedUpload) => storage.ctx.now().getTime()

/**
 * The limits of the bucket, if the caller uploaded to it recently and now sends a small object that the limits allow. Such an upload is
 * not authorized first, because policies and limits are checked again when its row is written.
 */
export function permittedRules(upload: RequestedUpload, { description, sizeMax }: IncomingUpload): Rules | undefined {
  const { rules, until } = entries.get(keyOf(upload)) ?? {}
  if (!rules || sizeMax === undefined || nowOf(upload) > (until ?? 0)) return undefined
  const bounds = boundsOf(upload.storage, rules, upload.place.name)
  if (sizeMax > Math.min(SMALL_UPLOAD_BYTES_MAX, bounds.sizeMax)) return undefined
  // A form may name the type after the bytes.
  if (rules.allowed_mime_types && !upload.isSizeKnown) return undefined
  try {
    bounds.checkType(description)
    return rules
  } catch {
    return undefined
  }
}

/** Called after an upload was authorized and written. */
export function cachePermission(upload: RequestedUpload, rules: Rules): void {
  const key = keyOf(upload)
  entries.delete(key)
  if (key.length + JSON.stringify(rules).length > CHARACTERS_MAX) return
  entries.set(key, { rules, until: nowOf(upload) + LIFETIME_MS })
  for (const oldest of entries.keys()) {
    if (entries.size <= ENTRIES_MAX) return
    entries.delete(oldest)
  }
}

/** Called when an upload was refused: the next one is authorized first. */
export const clearPermission = (upload: RequestedUpload): boolean => entries.delete(keyOf(upload))
