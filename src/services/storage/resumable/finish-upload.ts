import { SqlError } from '../../../engine/engine-errors.ts'
import type { Stored } from '../../../platform/blobs/store.ts'
import { blobKey } from '../blob-key.ts'
import { asServer } from '../database.ts'
import { deleteLeasedUpload, deleteUploads, endUpload, LEASE_LOST } from '../statements/resumable.ts'
import { isRaised, isRefused, RowSkipped, StorageError } from '../storage-error.ts'
import { removeBytes, toStorageError, writeRow } from '../upload-object.ts'
import { descriptionOf, type Session } from './upload-session.ts'

/** Points the object's row at the bytes, in the transaction that ends the upload. */
export async function finishUpload(session: Session, stored: Stored & { version: string }): Promise<void> {
  const { storage, upload, lease, caller } = session
  const { id, bucket_id: bucketId, name, token_id, token_expires_at, upsert, owner_id: ownerId } = upload
  const token = token_id && token_expires_at ? { id: token_id, expires: new Date(token_expires_at) } : undefined
  const writer = { upsert, ownerId, caller, token, serverStatements: [endUpload({ id, lease })] }
  try {
    await writeRow(storage, { bucketId, name }, { ...descriptionOf(upload), ...stored }, writer)
  } catch (error) {
    // The transaction marked the upload as ended, but a trigger skipped the row: a client must not find a finished upload.
    if (error instanceof RowSkipped) await asServer(storage, [deleteUploads([id])])
    if (error instanceof SqlError && isRefused(error)) await cleanUp(session, stored.version, error)
    throw isLeaseLost(error) ? new StorageError('OffsetConflict') : toStorageError(error)
  }
}

const isLeaseLost = (error: unknown): boolean => error instanceof SqlError && error.message.includes(LEASE_LOST)

/** Whether Postgres would refuse a retry too; after any other error the next request may succeed. */
const isFinal = (error: SqlError): boolean =>
  /^(42501|22|23|P0)/.test(error.code) || (isRaised(error) && !/^(40|53|55|57)/.test(error.code))

async function cleanUp({ storage, upload, lease }: Session, version: string, error: SqlError): Promise<void> {
  // Bytes that were sent in parts belong to the upload, which another or a later request may still finish.
  const isUploadVersion = version === upload.id
  const isOver = !isLeaseLost(error) && isFinal(error)
  const [[deleted] = []] = isOver ? await asServer(storage, [deleteLeasedUpload({ id: upload.id, lease })]) : []
  if (deleted || !isUploadVersion) removeBytes(storage, blobKey(storage.project.ref, version))
}
