import { blobKey } from '../blob-key.ts'
import type { Caller } from '../database.ts'
import type { Description } from '../incoming-upload.ts'
import type { Storage } from '../request.ts'
import type { Upload } from '../statements/resumable.ts'

/** An upload that this request has taken: it alone may note how far it has come. */
export interface Session {
  storage: Storage
  upload: Upload
  lease: string
  /** Whose policies decide when the object is written. */
  caller: Caller
}

/** Where the bucket puts its parts together. */
export const keyOf = ({ storage, upload }: Session): string => blobKey(storage.project.ref, upload.id)

export const descriptionOf = ({ description }: Upload): Description => JSON.parse(description)
