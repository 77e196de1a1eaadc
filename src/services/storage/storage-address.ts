import type { Bindings } from '../../platform/bindings.ts'
import { locate, type ProjectAddress } from '../gateway/project-address.ts'
import { checkBucketName, checkKey, decodePath } from './object-names.ts'
import type { StorageContext } from './request.ts'
import type { Place } from './statements/object-rows.ts'
import { StorageError } from './storage-error.ts'

const BASE = '/storage/v1'

/** Undefined for requests that are not for the storage server. */
export function storageAddressOf(request: Request, bindings: Bindings): ProjectAddress | undefined {
  const { project } = locate(request, bindings)
  if (!project?.path.startsWith(`${BASE}/`)) return undefined
  return { ...project, path: project.path.slice(BASE.length) }
}

/** What the URL standard takes for `.` and `..`, and resolves: a client that sends them as they are means another object. */
const DOTS = /[/\\](\.|%2e){1,2}([/\\]|$)/i

export function refuseDots({ url }: Request): void {
  const [path = ''] = url.split(/[?#]/)
  if (DOTS.test(path)) throw new StorageError('InvalidKey', 'Invalid key: no segment may be `.` or `..`')
}

/** The bucket and the key of a path whose first `heads` parts name the operation: `/object/info/{bucket}/{key…}` has two. */
export function placeIn(c: StorageContext, heads: number): Place {
  const path = storageAddressOf(c.req.raw, c.env)?.path ?? ''
  const [bucket = '', ...key] = path.split('/').slice(heads + 1)
  return { bucketId: checkBucketName(decodePath(bucket)), name: checkKey(decodePath(key.join('/'))) }
}

export const bucketIn = (c: StorageContext): string => checkBucketName(c.req.param('bucket') ?? '')
