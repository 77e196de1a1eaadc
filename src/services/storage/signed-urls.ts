import type * as z from 'zod'
import { isStorable } from '../../platform/http/common-values.ts'
import { type Claims, InvalidCredential } from '../../platform/jwt/credential.ts'
import { signClaims, verifyClaims } from '../gateway/credentials.ts'
import { asReader, type Caller, type Storage } from './database.ts'
import { userMetadataIn } from './incoming-upload.ts'
import { decodePath } from './object-names.ts'
import { findObject } from './read-object.ts'
import type { CopyHeaders, SignObject, SignObjects } from './schema.ts'
import type { Place } from './statements/object-rows.ts'
import { visibleNames } from './statements/objects.ts'
import { StorageError } from './storage-error.ts'
import { checkPolicies, throwRelatedNotFound } from './upload-object.ts'

const UPLOAD_SECONDS = 2 * 60 * 60

/** Signs a URL, which permits one operation on one object for a limited time. */
export async function signOne(storage: Storage, caller: Caller, place: Place, body: z.output<typeof SignObject>) {
  refuseTransform(body)
  await findObject(storage, place, { kind: 'signer', caller }, { version: body.versionId })
  return { signedURL: downloadUrl(storage, place, body.expiresIn, body.versionId) }
}

export async function signMany(storage: Storage, caller: Caller, bucketId: string, body: z.output<typeof SignObjects>) {
  refuseTransform(body)
  const names = body.paths.filter(isStorable)
  const [rows = []] = await asReader(storage, caller, [visibleNames(bucketId, names)])
  const visible = new Set(rows.map(({ name }) => name))
  return body.paths.map((path) => {
    const signedURL = visible.has(path) ? downloadUrl(storage, { bucketId, name: path }, body.expiresIn) : null
    const error = signedURL ? null : 'Either the object does not exist or you do not have access to it'
    return { error, path, signedURL }
  })
}

/** Ignoring `transform` would sign a URL of the original image, which the client takes for a transformed one. */
function refuseTransform({ transform }: Pick<z.output<typeof SignObject>, 'transform'>): void {
  if (Object.keys(transform ?? {}).length === 0) return
  const message = 'Invalid `transform`: image transformation is not available, sign the URL without it'
  throw new StorageError('FeatureNotEnabled', message)
}

function downloadUrl({ ctx, project }: Storage, place: Place, seconds: number, version?: string | null): string {
  const claims = { url: urlOf(place), scope: 'download', ...(version && { version }) }
  const token = signClaims(project.urls, claims, seconds, ctx.now())
  return `/object/sign/${pathOf(place)}?token=${token}`
}

export async function signUpload(
  storage: Storage,
  caller: Caller,
  place: Place,
  headers: z.output<typeof CopyHeaders>,
) {
  const upsert = headers['x-upsert']
  const description = { userMetadata: userMetadataIn(headers['x-metadata']) }
  await checkPolicies(storage, caller, place, { upsert, description }).catch(throwRelatedNotFound)
  const claims = {
    ...(caller.userId && { owner: caller.userId }),
    url: urlOf(place),
    upsert,
    scope: 'upload',
    jti: crypto.randomUUID(),
  }
  const token = signClaims(storage.project.urls, claims, UPLOAD_SECONDS, storage.ctx.now())
  return { url: `/object/upload/sign/${pathOf(place)}?token=${token}`, token }
}

/** Verifies the token of a signed URL: its scope and object must be those of the request, and it must not have expired at `validAt`. */
export async function verifyUrlToken(
  storage: Storage,
  place: Place,
  scope: 'download' | 'upload',
  token: string,
  validAt?: Date,
): Promise<{ place: Place; claims: Claims }> {
  const now = storage.ctx.now()
  const claims = await verifyClaims(storage.project.urls.trust, token, now, { ...(validAt && { validAt }) }).catch(
    (error) => {
      throw error instanceof InvalidCredential ? new StorageError('InvalidJWT', error.message) : error
    },
  )
  // Older tokens have no scope; only those for uploads have `upsert`.
  const { scope: granted = 'upsert' in claims ? 'upload' : 'download', url } = claims
  if (granted !== scope) throw new StorageError('InvalidSignature', `Token is not scoped for ${scope}`)
  if (typeof url !== 'string' || !isUrlOf(url, place)) throw new StorageError('InvalidSignature')
  return { place: { bucketId: place.bucketId, name: url.slice(place.bucketId.length + 1) }, claims }
}

const urlOf = ({ bucketId, name }: Place) => `${bucketId}/${name}`

/** Encodes only what would end the path: clients encode the URL again before they use it. */
const pathOf = (place: Place) => urlOf(place).replace(/[%?#]/g, encodeURIComponent)

function isUrlOf(url: string, place: Place): boolean {
  if (url === urlOf(place)) return true
  try {
    return url === `${place.bucketId}/${decodePath(place.name)}`
  } catch {
    return false
  }
}
