import { SqlError } from '../../../engine/engine.ts'
import type { Stored } from '../../../platform/blobs/store.ts'
import { blobKey } from '../blob-key.ts'
import { asServer } from '../database.ts'
import { endUpload, forgetMine, forgetUploads, TAKEN } from '../statements/resumable.ts'
import { isRaised, LeftOut, StorageError } from '../storage-error.ts'
import { removeBytes, told, writeRow } from '../upload-object.ts'
import { descriptionOf, type Session } from './upload-session.ts'

/** Points the object's row at the bytes, in the transaction that ends the upload. */
export async function point(session: Session, stored: Stored & { version: string }): Promise<void> {
  const { storage, upload, lease, caller } = session
  const { id, bucket_id: bucketId, name, token_id, token_expires_at, upsert, owner_id: ownerId } = upload
  const token = token_id && token_expires_at ? { id: token_id, expires: new Date(token_expires_at) } : undefined
  const writer = { upsert, ownerId, caller, token, noting: [endUpload({ id, lease })] }
  try {
    await writeRow(storage, { bucketId, name }, { ...descriptionOf(upload), ...stored }, writer)
  } catch (error) {
    // A trigger left the row out, so there is nothing that could be told to be there.
    if (error instanceof LeftOut) await asServer(storage, [forgetUploads([id])])
    if (error instanceof SqlError) await clear(session, stored.version, error)
    throw isTaken(error) ? new StorageError('OffsetConflict') : told(error)
  }
}

const isTaken = (error: unknown): boolean => error instanceof SqlError && error.message.includes(TAKEN)

/** What Postgres refuses whenever it is asked; anything else may go better with the next request. */
const isFinal = (error: SqlError): boolean =>
  /^(42501|22|23|P0)/.test(error.code) || (isRaised(error) && !/^(40|53|55|57)/.test(error.code))

async function clear({ storage, upload, lease }: Session, version: string, error: SqlError): Promise<void> {
  // Bytes that came in parts are the upload's, which goes on with whoever has taken it, or with the next request.
  const isOwn = version === upload.id
  const isOver = !isTaken(error) && isFinal(error)
  const [[forgotten] = []] = isOver ? await asServer(storage, [forgetMine({ id: upload.id, lease })]) : []
  if (forgotten || !isOwn) removeBytes(storage, blobKey(storage.project.ref, version))
}
