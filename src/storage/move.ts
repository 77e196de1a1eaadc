import * as z from 'zod'
import { openStore } from '../blobs/store.ts'
import { newTimedId } from '../db/id.ts'
import { SqlError } from '../engine/engine.ts'
import { blobKey, storedBlobKey } from './blob-key.ts'
import { optional, readJson } from './body.ts'
import { asCaller } from './database.ts'
import { StorageError } from './error.ts'
import { safeHeader, userMetadataIn } from './incoming.ts'
import { checkBucketName, checkKey } from './names.ts'
import { whileBucketAnswers } from './patience.ts'
import { describe, findObject, shown } from './read.ts'
import { callerOf, type StorageContext } from './request.ts'
import { moveObject, type Place } from './statements.ts'
import { mayUpload, related, write } from './upload.ts'

const Move = z.object({
  bucketId: z.string(),
  sourceKey: z.string(),
  destinationKey: z.string(),
  destinationBucket: z.string().nullish(),
})

function placesIn({ bucketId, sourceKey, destinationKey, destinationBucket }: z.output<typeof Move>) {
  return {
    from: placeOf(bucketId, sourceKey),
    to: placeOf(destinationBucket ?? bucketId, destinationKey),
  }
}

const placeOf = (bucketId: string, name: string): Place => ({
  bucketId: checkBucketName(bucketId),
  name: checkKey(name),
})

/** A change of the row alone: the bytes stay where they are. */
export async function move(c: StorageContext) {
  const caller = await callerOf(c, 'storage.object.move')
  const { from, to } = placesIn(await readJson(c, Move))
  const [[moved] = []] = await asCaller(c.var, caller, [moveObject(from, to)]).catch(taken)
  if (!moved) throw new StorageError('NoSuchKey')
  return c.json({ message: 'Successfully moved' })
}

function taken(error: unknown): never {
  if (error instanceof SqlError && error.code === '23505') throw new StorageError('ResourceAlreadyExists')
  throw error
}

const Copy = Move.extend({
  metadata: z.object({ cacheControl: z.string().nullish(), mimetype: z.string().nullish() }).nullish(),
  copyMetadata: optional(z.boolean(), true),
})

/** New bytes under a version of their own, so that neither object can change with the other. */
export async function copy(c: StorageContext) {
  const { ctx, project } = c.var
  const caller = await callerOf(c, 'storage.object.copy')
  const body = await readJson(c, Copy)
  const { from, to } = placesIn(body)
  const upsert = c.req.header('x-upsert') === 'true'
  const source = await findObject(c.var, from, { kind: 'caller', caller })
  const { size, mimetype, cacheControl, xRobotsTag } = describe(source)
  const description = {
    contentType: safeHeader(body.metadata?.mimetype ?? mimetype),
    cacheControl: safeHeader(body.metadata?.cacheControl ?? cacheControl),
    xRobotsTag,
    userMetadata: body.copyMetadata ? source.user_metadata : userMetadataIn(c.req.header('x-metadata')),
  }
  await mayUpload(c.var, caller, to, { upsert, description, size }).catch(related)
  const version = newTimedId(ctx.now())
  const sourceKey = storedBlobKey(project.ref, source.version)
  const stored =
    sourceKey &&
    (await whileBucketAnswers(c.var, openStore(ctx).copy(sourceKey, blobKey(project.ref, version), { size })))
  if (!stored) throw new StorageError('NoSuchKey')
  const row = await write(
    c.var,
    to,
    { ...description, ...stored, version },
    { upsert, caller, ownerId: caller.userId ?? null },
  )
  return c.json({ Key: `${to.bucketId}/${to.name}`, Id: row.id, ...shown(row), user_metadata: row.user_metadata })
}
