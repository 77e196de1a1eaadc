import { del, head, patch, post, type Route, responses, streamed } from '../route.ts'
import { Bytes, ContinueUploadHeaders, CreateUploadHeaders, UploadTokenHeaders } from '../schema.ts'
import type { StorageErrorCode } from '../storage-error.ts'
import { cancelUpload, continueUpload, showUpload } from './continue-upload.ts'
import { create } from './create-upload.ts'
import { BYTES_TYPE, TUS_PATH } from './tus-protocol.ts'

const body = streamed({ [BYTES_TYPE]: Bytes })
const ERRORS: readonly StorageErrorCode[] = ['VersionMismatch', 'InvalidRequest', 'NoSuchUpload']
const WRITE_ERRORS: readonly StorageErrorCode[] = [
  ...ERRORS,
  ...(['NoSuchBucket', 'KeyAlreadyExists', 'InvalidSignature', 'OffsetConflict', 'InvalidMimeType'] as const),
]

/** The routes of uploads with the caller's own token, or with the token of a signed URL. */
const routesFor = (path: `${typeof TUS_PATH}${'' | '/sign'}`, suffix: string, isSigned: boolean): readonly Route[] => {
  const access = isSigned ? 'upload token' : 'caller'
  const one = `${path}/{id}` as const
  return [
    post(path, {
      id: `create-upload${suffix}`,
      operation: 'storage.tus.upload.create',
      summary: 'Create a resumable upload, with its first bytes if the body has any',
      access,
      headers: CreateUploadHeaders,
      body,
      returns: responses({ 201: { description: 'The upload is at the URL in `location`' } }),
      errors: [...WRITE_ERRORS, 'InvalidBucketName', 'InvalidHeaderChar'],
      handle: (request) => create(request, isSigned),
    }),
    head(one, {
      id: `get-upload${suffix}`,
      operation: 'storage.tus.upload.get',
      summary: 'Get the offset from which an upload can be continued',
      access,
      headers: UploadTokenHeaders,
      returns: responses({ 200: { description: 'The offset is in `upload-offset`' } }),
      errors: ERRORS,
      handle: (request) => showUpload(request, isSigned),
    }),
    patch(one, {
      id: `continue-upload${suffix}`,
      operation: 'storage.tus.upload.part',
      summary: 'Send the next bytes of an upload',
      description: 'The last byte creates the object. POST with `x-http-method-override: PATCH` does the same.',
      access,
      headers: ContinueUploadHeaders,
      body,
      returns: responses({ 204: { description: 'The new offset is in `upload-offset`' } }),
      errors: [...WRITE_ERRORS, 'InvalidContentType'],
      handle: (request) => continueUpload(request, isSigned),
    }),
    del(one, {
      id: `cancel-upload${suffix}`,
      operation: 'storage.tus.upload.delete',
      summary: 'Cancel an unfinished upload',
      access,
      headers: UploadTokenHeaders,
      returns: responses({ 204: { description: 'The upload is removed' } }),
      errors: [...ERRORS, 'BytesUnavailable'],
      handle: (request) => cancelUpload(request, isSigned),
    }),
  ]
}

/** Resumable uploads (TUS): each request continues where the one before ended. `sign` comes first, or it would match as the id of an upload. */
export const resumableRoutes = [...routesFor(`${TUS_PATH}/sign`, '-signed', true), ...routesFor(TUS_PATH, '', false)]
