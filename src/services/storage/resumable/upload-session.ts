import { blobKey } from '../blob-key.ts'
import type { Caller, Storage } from '../database.ts'
import type { Description } from '../incoming-upload.ts'
import type { Upload } from '../statements/resumable.ts'

export const PART_BYTES_MAX = 16 * 1024 ** 2

/** An upload that this request has leased: no other request can record bytes. */
export interface Session {
  storage: Storage
  upload: Upload
  lease: string
  /** The policies for this caller apply when the object is written. */
  caller: Caller
}

/** The key to which the bucket assembles the parts. */
export const keyOf = ({ storage, upload }: Session): string => blobKey(storage.project.ref, upload.id)

export const descriptionOf = ({ description }: Upload): Description => JSON.parse(description)
