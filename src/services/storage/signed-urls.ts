import type { Hono } from 'hono'
import * as z from 'zod'
import { isStorable } from '../../platform/http/common-values.ts'
import { type Claims, InvalidCredential } from '../../platform/jwt/credential.ts'
import { signClaims, verifyClaims } from '../gateway/credentials.ts'
import { asReader } from './database.ts'
import { userMetadataIn } from './incoming-upload.ts'
import { decodePath } from './object-names.ts'
import { findObject, serveObject } from './read-object.ts'
import { requireCaller, type StorageContext, type StorageEnv } from './request.ts'
import { readJson } from './request-body.ts'
import type { Place } from './statements/object-rows.ts'
import { visibleNames } from './statements/objects.ts'
import { bucketIn, placeIn } from './storage-address.ts'
import { StorageError } from './storage-error.ts'
import { authorizeUpload, expiryOf, throwRelatedNotFound, uploadSigned } from './upload-object.ts'

const UPLOAD_SECONDS = 2 * 60 * 60
const SIGNED_MAX = 1_000

/** Routes that create and serve signed URLs, each of which permits one operation on one object for a limited time. */
export function signedRoutes(app: Hono<StorageEnv>): void {
  app.post('/object/upload/sign/:bucket/*', signUpload)
  app.put('/object/upload/sign/:bucket/*', async (c) => {
    const { place, claims } = await verifyUrlToken(c, placeIn(c, 3), 'upload', c.req.query('token'))
    return uploadSigned(c, place, claims)
  })
  app.post('/object/sign/:bucket', signMany)
  app.post('/object/sign/:bucket/*', signOne)
  app.get('/object/sign/:bucket/*', async (c) => {
    const { place, claims } = await verifyUrlToken(c, placeIn(c, 2), 'download', c.req.query('token'))
    return serveObject(c, place, { kind: 'signed', expires: expiryOf(claims) })
  })
}

const expiresIn = z.coerce
  .number()
  .int()
  .min(1)
  .max(10 ** 10)
const One = z.object({
  expiresIn,
  versionId: z.string().nullish(),
  transform: z.record(z.string(), z.unknown()).nullish(),
})

async function signOne(c: StorageContext) {
  const place = placeIn(c, 2)
  const caller = await requireCaller(c, 'storage.object.sign')
  const body = await readJson(c, One)
  // Refused, as a URL to the original image would look like a transformed one.
  if (Object.keys(body.transform ?? {}).length > 0) {
    throw new StorageError(
      'FeatureNotEnabled',
      'Invalid `transform`: image transformation is not available, sign the URL without it',
    )
  }
  await findObject(c.var, place, { kind: 'signer', caller }, body.versionId)
  return c.json({ signedURL: await downloadUrl(c, place, body.expiresIn) })
}

const Many = z.object({ expiresIn, paths: z.array(z.string()).min(1).max(SIGNED_MAX) })

async function signMany(c: StorageContext) {
  const bucketId = bucketIn(c)
  const caller = await requireCaller(c, 'storage.object.sign_many')
  const body = await readJson(c, Many)
  const names = body.paths.filter(isStorable)
  const [rows = []] = await asReader(c.var, caller, [visibleNames(bucketId, names)])
  const visible = new Set(rows.map(({ name }) => name))
  return c.json(
    await Promise.all(
      body.paths.map(async (path) => {
        const signedURL = visible.has(path) ? await downloadUrl(c, { bucketId, name: path }, body.expiresIn) : null
        return {
          error: signedURL ? null : 'Either the object does not exist or you do not have access to it',
          path,
          signedURL,
        }
      }),
    ),
  )
}

async function downloadUrl(c: StorageContext, place: Place, seconds: number): Promise<string> {
  const token = await signClaims(c.var.project.urls, { url: urlOf(place), scope: 'download' }, seconds, c.var.ctx.now())
  return `/object/sign/${pathOf(place)}?token=${token}`
}

async function signUpload(c: StorageContext) {
  const place = placeIn(c, 3)
  const caller = await requireCaller(c, 'storage.object.sign_upload_url')
  const upsert = c.req.header('x-upsert') === 'true'
  const description = { userMetadata: userMetadataIn(c.req.header('x-metadata')) }
  await authorizeUpload(c.var, caller, place, { upsert, description }).catch(throwRelatedNotFound)
  const claims = {
    ...(caller.userId && { owner: caller.userId }),
    url: urlOf(place),
    upsert,
    scope: 'upload',
    jti: crypto.randomUUID(),
  }
  const token = await signClaims(c.var.project.urls, claims, UPLOAD_SECONDS, c.var.ctx.now())
  return c.json({ url: `/object/upload/sign/${pathOf(place)}?token=${token}`, token })
}

/** Verifies the token of a signed URL: its scope and object must be those of the request. */
export async function verifyUrlToken(
  c: StorageContext,
  place: Place,
  scope: 'download' | 'upload',
  token: string | undefined,
): Promise<{ place: Place; claims: Claims }> {
  if (!token) throw new StorageError('InvalidRequest', "querystring must have required property 'token'")
  const claims = await verifyClaims(c.var.project.urls.trust, token, c.var.ctx.now()).catch((error) => {
    throw error instanceof InvalidCredential ? new StorageError('InvalidJWT', error.message) : error
  })
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
