import type { Bindings } from '../../platform/bindings.ts'
import { locate, type ProjectAddress } from '../gateway/project-address.ts'
import { checkBucketName, checkKey, decodePath } from './object-names.ts'
import type { StorageContext } from './request.ts'
import type { Place } from './statements/object-rows.ts'
import { StorageError } from './storage-error.ts'

const BASE = '/storage/v1'

/** Undefined if the request is not for the storage server. */
export function storageAddressOf(request: Request, bindings: Bindings): ProjectAddress | undefined {
  const { project } = locate(request, bindings)
  if (!project?.path.startsWith(`${BASE}/`)) return undefined
  return { ...project, path: project.path.slice(BASE.length) }
}

/** Segments that URL parsers resolve as `.` or `..`: the request would reach another object than the client meant. */
const DOT_SEGMENT = /[/\\](\.|%2e){1,2}([/\\]|$)/i

export function refuseDotSegments({ url }: Request): void {
  const [path = ''] = url.split(/[?#]/)
  if (DOT_SEGMENT.test(path)) throw new StorageError('InvalidKey', 'Invalid key: no segment may be `.` or `..`')
}

/** The bucket and key of a path whose first `segments` segments name the operation: `/object/info/{bucket}/{key…}` has two. */
export function placeIn(c: StorageContext, segments: number): Place {
  const path = storageAddressOf(c.req.raw, c.env)?.path ?? ''
  const [bucket = '', ...key] = path.split('/').slice(segments + 1)
  return { bucketId: checkBucketName(decodePath(bucket)), name: checkKey(decodePath(key.join('/'))) }
}

export const bucketIn = (c: StorageContext): string => checkBucketName(c.req.param('bucket') ?? '')
