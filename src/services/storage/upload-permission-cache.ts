import { SizedCache } from '../../platform/sized-cache.ts'
import type { Caller, Storage } from './database.ts'
import type { IncomingUpload } from './incoming-upload.ts'
import type { Place } from './statements/object-rows.ts'
import { boundsOf, type Rules } from './upload-bounds.ts'

/** Larger uploads are authorized first, so that a refused caller does not send them in vain. */
export const SMALL_UPLOAD_BYTES_MAX = 128 * 1024
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

/** Rules of the bucket by project, bucket, caller and kind of upload. */
const permitted = new SizedCache<Rules>({ sizeMax: 2_000_000, entriesMax: 10_000, ms: 60_000 })

const keyOf = ({ storage, caller, place, upsert, isSizeKnown }: RequestedUpload) =>
  JSON.stringify([storage.project.ref, place.bucketId, caller.role, caller.userId, upsert, isSizeKnown])

const nowOf = ({ storage }: RequestedUpload) => storage.ctx.now().getTime()

/**
 * The limits of the bucket, if the caller uploaded to it recently and now sends a small object that the limits allow. Such an upload is
 * not authorized first, because policies and limits are checked again when its row is written.
 */
export function permittedRules(upload: RequestedUpload, { description, sizeMax }: IncomingUpload): Rules | undefined {
  const rules = permitted.get(keyOf(upload), nowOf(upload))
  if (!rules || sizeMax === undefined) return undefined
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
  const characters = key.length + JSON.stringify(rules).length
  if (characters > CHARACTERS_MAX) permitted.delete(key)
  else permitted.set(key, rules, characters, nowOf(upload))
}

/** Called when an upload was refused: the next one is authorized first. */
export const clearPermission = (upload: RequestedUpload): void => permitted.delete(keyOf(upload))
