import type { Bindings } from '../env.ts'
import { type ProjectAddress, projectAddressOf } from '../http/project-address.ts'
import { checkBucketName, checkKey, decodePath } from './names.ts'
import type { StorageContext } from './request.ts'
import type { Place } from './statements/object-rows.ts'

const BASE = '/storage/v1'

/** Each request is asked several times. */
const addresses = new WeakMap<Request, ProjectAddress>()

/** As the URL standard reads a path, so that `..` has no meaning left; undefined for requests that are not for the storage server. */
export function storageAddressOf(request: Request, { PROJECT_DOMAIN }: Bindings): ProjectAddress | undefined {
  const known = addresses.get(request)
  if (known) return known
  const address = projectAddressOf(new URL(request.url), PROJECT_DOMAIN)
  if (!address?.path.startsWith(`${BASE}/`)) return undefined
  const found = { ...address, path: address.path.slice(BASE.length) }
  addresses.set(request, found)
  return found
}

/** The bucket and the key of a path whose first `heads` parts name the operation: `/object/info/{bucket}/{key…}` has two. */
export function placeIn(c: StorageContext, heads: number): Place {
  const path = storageAddressOf(c.req.raw, c.env)?.path ?? ''
  const [bucket = '', ...key] = path.split('/').slice(heads + 1)
  return { bucketId: checkBucketName(decodePath(bucket)), name: checkKey(decodePath(key.join('/'))) }
}

export const bucketIn = (c: StorageContext): string => checkBucketName(c.req.param('bucket') ?? '')
