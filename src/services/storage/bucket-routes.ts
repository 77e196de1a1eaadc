import * as z from 'zod'
import * as buckets from './buckets.ts'
import { del, get, post, put } from './route.ts'
import { Bucket, BucketName, CreateBucket, Health, ListBuckets, Message, UpdateBucket } from './schema.ts'

export const healthRoutes = [
  get('/health', {
    id: 'get-storage-health',
    operation: 'storage.health',
    summary: 'Check that storage can reach the database of the project',
    access: 'caller',
    returns: Health,
    handle: ({ storage, caller }) => buckets.checkHealth(storage, caller),
  }),
]

export const bucketRoutes = [
  post('/bucket/', {
    id: 'create-bucket',
    operation: 'storage.bucket.create',
    summary: 'Create a bucket',
    access: 'caller',
    body: CreateBucket,
    returns: BucketName,
    errors: ['InvalidBucketName', 'InvalidMimeType', 'BucketAlreadyExists'],
    handle: ({ storage, caller, body }) => buckets.create(storage, caller, body),
  }),
  get('/bucket/', {
    id: 'list-buckets',
    operation: 'storage.bucket.list',
    summary: 'List the buckets that the caller may see',
    access: 'caller',
    query: ListBuckets,
    returns: z.array(Bucket),
    handle: ({ storage, caller, query }) => buckets.list(storage, caller, query),
  }),
  get('/bucket/{bucketId}', {
    id: 'get-bucket',
    operation: 'storage.bucket.get',
    summary: 'Get a bucket',
    access: 'caller',
    returns: Bucket,
    errors: ['NoSuchBucket'],
    handle: ({ storage, caller, bucketId }) => buckets.get(storage, caller, bucketId),
  }),
  put('/bucket/{bucketId}', {
    id: 'update-bucket',
    operation: 'storage.bucket.update',
    summary: 'Change the limits of a bucket, or whether it is public',
    access: 'caller',
    body: UpdateBucket,
    returns: Message,
    errors: ['NoSuchBucket', 'InvalidMimeType'],
    handle: ({ storage, caller, bucketId, body }) => buckets.update(storage, caller, bucketId, body),
  }),
  del('/bucket/{bucketId}', {
    id: 'delete-bucket',
    operation: 'storage.bucket.delete',
    summary: 'Delete an empty bucket',
    access: 'caller',
    returns: Message,
    errors: ['NoSuchBucket', 'ResourceNotEmpty'],
    handle: ({ storage, caller, bucketId }) => buckets.remove(storage, caller, bucketId),
  }),
  post('/bucket/{bucketId}/empty', {
    id: 'empty-bucket',
    operation: 'storage.bucket.empty',
    summary: 'Delete all objects of a bucket',
    access: 'service role',
    returns: Message,
    errors: ['NoSuchBucket', 'TooManyObjects'],
    handle: ({ storage, caller, bucketId }) => buckets.empty(storage, caller, bucketId),
  }),
]
