import { checkMimeType } from './bucket-limits.ts'
import type { Storage } from './database.ts'
import type { Description } from './incoming-upload.ts'
import type { FoundObject } from './statements/object-rows.ts'
import { StorageError } from './storage-error.ts'

/** The limits of a bucket. */
export type Rules = FoundObject['bucket']

/** The object that dashboards create to keep an empty folder. It has no bytes and may have any type. */
const PLACEHOLDER = /(^|\/)\.emptyFolderPlaceholder$/

/** The largest size of an upload, and a check of its type. */
export function boundsOf({ project }: Storage, bucket: Rules, name: string) {
  const isPlaceholder = PLACEHOLDER.test(name)
  const sizeMax = Math.min(bucket.file_size_limit ?? Number.POSITIVE_INFINITY, project.storage.fileSizeLimit)
  return {
    sizeMax: isPlaceholder ? 0 : sizeMax,
    checkType({ contentType }: Pick<Description, 'contentType'>) {
      if (!isPlaceholder) checkMimeType(contentType, bucket.allowed_mime_types)
    },
  }
}

/** Refuses a stored object that the bucket would not accept as an upload. */
export function checkFits(
  storage: Storage,
  bucket: Rules,
  name: string,
  object: { size: number; contentType: string },
) {
  const { sizeMax, checkType } = boundsOf(storage, bucket, name)
  if (object.size > sizeMax) throw new StorageError('EntityTooLarge')
  checkType(object)
}
