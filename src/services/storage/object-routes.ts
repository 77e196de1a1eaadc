import * as z from 'zod'
import { list, listPage } from './list-objects.ts'
import { copy, move } from './move-object.ts'
import { info, removeMany, removeOne } from './objects.ts'
import { type Reader, serveObject } from './read-object.ts'
import { del, get, jsonText, post, put, type Route, responses, streamed } from './route.ts'
import * as schema from './schema.ts'
import { signMany, signOne, signUpload } from './signed-urls.ts'
import type { StorageErrorCode } from './storage-error.ts'
import { expiryOf, upload, uploadSigned } from './upload-object.ts'

const ANYONE: Reader = { kind: 'anyone' }

const download = responses({
  200: { description: 'The bytes of the object', content: { '*/*': schema.Bytes } },
  206: { description: 'The part that `Range` names', content: { '*/*': schema.Bytes } },
  304: { description: 'The client has this version' },
})
const READ_ERRORS: readonly StorageErrorCode[] = ['NoSuchBucket', 'NoSuchKey', 'InvalidRequest']
const DOWNLOAD_ERRORS: readonly StorageErrorCode[] = [
  ...READ_ERRORS,
  ...(['PreconditionFailed', 'InvalidRange', 'BytesUnavailable'] as const),
]
const reading = { headers: schema.Conditions, returns: download, errors: DOWNLOAD_ERRORS }

const information = {
  query: schema.Version,
  returns: responses({
    200: { description: 'Success', content: { 'application/json': schema.ObjectInfo } },
  }),
  errors: READ_ERRORS,
}

const uploading = {
  body: streamed({ 'multipart/form-data': schema.UploadForm, '*/*': schema.Bytes }),
  errors: ['NoSuchBucket', 'InvalidMimeType', 'InvalidHeaderChar', 'InvalidXRobotsTag'],
} satisfies Partial<Route>
const creating = { ...uploading, errors: [...uploading.errors, 'KeyAlreadyExists'] } satisfies Partial<Route>

/** Uploads and downloads by the token of a signed URL, and the routes that sign them. */
const signedRoutes = [
  post('/object/upload/sign/{bucketName}/{wildcard}', {
    id: 'sign-upload-url',
    operation: 'storage.object.sign_upload_url',
    summary: 'Sign a URL for one upload',
    access: 'caller',
    headers: schema.CopyHeaders,
    returns: schema.SignedUpload,
    errors: ['KeyAlreadyExists'],
    handle: ({ storage, caller, place, headers }) => signUpload(storage, caller, place, headers),
  }),
  put('/object/upload/sign/{bucketName}/{wildcard}', {
    id: 'upload-to-signed-url',
    operation: 'storage.object.upload_signed',
    summary: 'Upload an object to a signed URL',
    access: 'upload URL',
    query: schema.UrlToken,
    headers: schema.ReplaceHeaders,
    returns: schema.UploadedKey,
    ...creating,
    handle: (request) => uploadSigned(request),
  }),
  post('/object/sign/{bucketName}', {
    id: 'sign-objects',
    operation: 'storage.object.sign_many',
    summary: 'Sign URLs for downloads of several objects',
    access: 'caller',
    body: schema.SignObjects,
    returns: schema.SignedUrls,
    errors: ['FeatureNotEnabled'],
    handle: ({ storage, caller, bucketId, body }) => signMany(storage, caller, bucketId, body),
  }),
  post('/object/sign/{bucketName}/{wildcard}', {
    id: 'sign-object',
    operation: 'storage.object.sign',
    summary: 'Sign a URL for downloads of an object',
    access: 'caller',
    body: schema.SignObject,
    returns: schema.SignedUrl,
    errors: ['NoSuchBucket', 'NoSuchKey', 'FeatureNotEnabled'],
    handle: ({ storage, caller, place, body }) => signOne(storage, caller, place, body),
  }),
  get('/object/sign/{bucketName}/{wildcard}', {
    id: 'download-signed-object',
    operation: 'storage.object.get_signed',
    summary: 'Download an object by its signed URL',
    access: 'download URL',
    query: schema.SignedDownload,
    ...reading,
    handle: (request) =>
      serveObject(request, { kind: 'signed', expires: expiryOf(request.claims), version: request.claims.version }),
  }),
]

/** Routes of operations come first, so they take precedence over a bucket of the same name. */
export const objectRoutes = [
  ...signedRoutes,
  post('/object/copy', {
    id: 'copy-object',
    operation: 'storage.object.copy',
    summary: 'Copy an object',
    access: 'caller',
    headers: schema.CopyHeaders,
    body: schema.CopyObject,
    returns: jsonText(schema.CopiedObject),
    errors: [
      ...(['InvalidBucketName', 'NoSuchBucket', 'NoSuchKey', 'KeyAlreadyExists'] as const),
      ...(['InvalidMimeType', 'InvalidHeaderChar', 'BytesUnavailable'] as const),
    ],
    handle: ({ storage, caller, body, headers }) => copy(storage, caller, body, headers),
  }),
  post('/object/move', {
    id: 'move-object',
    operation: 'storage.object.move',
    summary: 'Move or rename an object',
    access: 'caller',
    body: schema.MoveObject,
    returns: schema.Message,
    errors: ['InvalidBucketName', 'NoSuchKey', 'InvalidMimeType'],
    handle: ({ storage, caller, body }) => move(storage, caller, body),
  }),
  post('/object/list/{bucketName}', {
    id: 'list-objects',
    operation: 'storage.object.list',
    summary: 'List the objects and folders in a folder',
    access: 'caller',
    body: schema.ListObjects,
    returns: jsonText(schema.ListedObjects),
    handle: ({ storage, caller, bucketId, body }) => list(storage, caller, bucketId, body),
  }),
  post('/object/list-v2/{bucketName}', {
    id: 'list-objects-v2',
    operation: 'storage.object.list_v2',
    summary: 'List the objects whose names begin with a prefix, page by page',
    access: 'caller',
    body: schema.ListPage,
    returns: schema.Page,
    handle: ({ storage, caller, bucketId, body }) => listPage(storage, caller, bucketId, body),
  }),
  get('/object/public/{bucketName}/{wildcard}', {
    id: 'download-public-object',
    operation: 'storage.object.get_public',
    summary: 'Download an object of a public bucket',
    access: 'public',
    query: schema.Download,
    ...reading,
    handle: (request) => serveObject(request, ANYONE),
  }),
  get('/object/info/public/{bucketName}/{wildcard}', {
    id: 'get-public-object-info',
    operation: 'storage.object.info_public',
    summary: 'Get information about an object of a public bucket',
    access: 'public',
    ...information,
    handle: ({ storage, place, query }) => info(storage, place, ANYONE, query.versionId),
  }),
  get('/object/authenticated/{bucketName}/{wildcard}', {
    id: 'download-authenticated-object',
    operation: 'storage.object.get_authenticated',
    summary: 'Download an object',
    access: 'caller',
    query: schema.Download,
    ...reading,
    handle: (request) => serveObject(request, { kind: 'caller', caller: request.caller }),
  }),
  get('/object/info/authenticated/{bucketName}/{wildcard}', {
    id: 'get-authenticated-object-info',
    operation: 'storage.object.info_authenticated',
    summary: 'Get information about an object',
    access: 'caller',
    ...information,
    handle: ({ storage, place, caller, query }) => info(storage, place, { kind: 'caller', caller }, query.versionId),
  }),
  get('/object/info/{bucketName}/{wildcard}', {
    id: 'get-object-info',
    operation: 'storage.object.info_authenticated',
    summary: 'Get information about an object that the caller may read',
    access: 'optional caller',
    ...information,
    handle: ({ storage, place, caller, query }) => info(storage, place, { kind: 'caller', caller }, query.versionId),
  }),
  get('/object/{bucketName}/{wildcard}', {
    id: 'download-object',
    operation: 'storage.object.get_authenticated',
    summary: 'Download an object that the caller may read',
    description: 'Use `/object/authenticated/{bucketName}/{wildcard}`.',
    deprecated: true,
    access: 'optional caller',
    query: schema.Download,
    ...reading,
    handle: (request) => serveObject(request, { kind: 'caller', caller: request.caller }),
  }),
  post('/object/{bucketName}/{wildcard}', {
    id: 'upload-object',
    operation: 'storage.object.upload',
    summary: 'Upload an object',
    access: 'caller',
    headers: schema.UploadHeaders,
    returns: schema.UploadedObject,
    ...creating,
    handle: (request) => upload(request, request.headers['x-upsert']),
  }),
  put('/object/{bucketName}/{wildcard}', {
    id: 'replace-object',
    operation: 'storage.object.upload_update',
    summary: 'Upload an object, and replace the one that exists',
    access: 'caller',
    headers: schema.ReplaceHeaders,
    returns: schema.UploadedObject,
    ...uploading,
    handle: (request) => upload(request, true),
  }),
  del('/object/{bucketName}', {
    id: 'delete-objects',
    operation: 'storage.object.delete_many',
    summary: 'Delete several objects',
    access: 'caller',
    body: schema.RemoveObjects,
    returns: z.array(schema.StoredObject),
    handle: ({ storage, caller, bucketId, body }) => removeMany(storage, caller, bucketId, body),
  }),
  del('/object/{bucketName}/{wildcard}', {
    id: 'delete-object',
    operation: 'storage.object.delete',
    summary: 'Delete an object',
    access: 'caller',
    query: schema.Version,
    returns: schema.Message,
    errors: ['NoSuchKey'],
    handle: ({ storage, caller, place, query }) => removeOne(storage, caller, place, query.versionId),
  }),
]
