import { getMimeType } from 'hono/utils/mime'
import type { AssetManifest } from '../../../builder/asset-manifest.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { BoundedMap } from '../../../platform/bounded-map.ts'
import { isNotModified, rangeOf } from '../../../platform/http/conditional-request.ts'
import { workerAssetsKey } from '../../runtime/program-keys.ts'
import { findAsset, isForAssets, type OpenedManifest } from './route.ts'

/** The static assets of an image. */
export interface Assets {
  ref: string
  image: string
  manifestBytes: number
}

/** Number of cached manifests, each of at most 256 KiB. */
const MANIFESTS_MAX = 64
/** Manifests by image. They never expire, because an image never changes. */
const manifests = new BoundedMap<string, OpenedManifest>(MANIFESTS_MAX)

async function openManifest(ctx: SystemCtx, { ref, image, manifestBytes }: Assets): Promise<OpenedManifest> {
  const key = workerAssetsKey(ref, image)
  const known = manifests.get(key)
  const found = known ?? (await readManifest(ctx, key, manifestBytes))
  manifests.set(key, found)
  return found
}

/** Only the platform writes manifests, so the content is not validated. */
async function readManifest(ctx: SystemCtx, key: string, length: number): Promise<OpenedManifest> {
  const found = await openStore(ctx).get(key, { offset: 0, length })
  if (!found) throw new Error(`the bucket has no ${key}`)
  const { files, ...manifest }: AssetManifest = await new Response(found.body).json()
  return { ...manifest, files: new Map(Object.entries(files)) }
}

type AssetRequest = Pick<Request, 'url' | 'method' | 'headers'>

/** Returns the assets' response to a caller's request; undefined if the program answers. */
export async function assetResponse(
  ctx: SystemCtx,
  assets: Assets,
  request: AssetRequest,
): Promise<Response | undefined> {
  const manifest = await openManifest(ctx, assets)
  const isMatch = isForAssets(manifest, pathOf(request), request.headers)
  return isMatch ? answer(ctx, assets, { manifest, request }) : undefined
}

/** Returns the assets' response to a request of the program. */
export async function fetchAsset(ctx: SystemCtx, assets: Assets, request: AssetRequest): Promise<Response> {
  return answer(ctx, assets, { manifest: await openManifest(ctx, assets), request })
}

/**
 * Decodes each segment, except one with an encoded slash, which names no file. Repeated slashes count as one, so that
 * no redirect points to another host.
 */
function pathOf({ url }: AssetRequest): string {
  const { pathname } = new URL(url)
  return pathname.split('/').map(decodeSegment).join('/').replace(/\/+/g, '/')
}

function decodeSegment(segment: string): string {
  try {
    const text = decodeURIComponent(segment)
    return text.includes('/') ? segment : text
  } catch {
    return segment
  }
}

/** Browsers revalidate an asset with each use. */
const CACHE_CONTROL = 'public, max-age=0, must-revalidate'

/** Other units and several ranges are ignored, as RFC 9110 (14.2) requires of unsupported ones. */
const ONE_RANGE = /^\s*bytes=(\d+-\d*|-\d+)\s*$/i

async function answer(
  ctx: SystemCtx,
  assets: Assets,
  { manifest, request }: { manifest: OpenedManifest; request: AssetRequest },
): Promise<Response> {
  const { method, headers: requestHeaders } = request
  const found = findAsset(manifest, pathOf(request))
  if (!found) return new Response(null, { status: 404 })
  if (method !== 'GET' && method !== 'HEAD') return new Response(null, { status: 405, headers: { allow: 'GET, HEAD' } })
  if ('redirect' in found) return redirectTo(found.redirect, request)
  const { path, status } = found
  const [offset = 0, size = 0, tag = ''] = manifest.files.get(path) ?? []
  const etag = `"${tag}"`
  const headers = new Headers({ etag, 'cache-control': CACHE_CONTROL })
  if (status === 200 && isNotModified(requestHeaders, { etag })) return new Response(null, { status: 304, headers })
  headers.set('content-type', getMimeType(path) ?? 'application/octet-stream')
  headers.set('accept-ranges', 'bytes')
  const isPartial = method === 'GET' && status === 200 && ONE_RANGE.test(requestHeaders.get('range') ?? '')
  const range = isPartial ? rangeOf(requestHeaders, size, { etag }) : undefined
  if (range === null) return new Response(null, { status: 416, headers: { 'content-range': `bytes */${size}` } })
  const { offset: from, length } = range ?? { offset: 0, length: size }
  headers.set('content-length', String(length))
  if (range) headers.set('content-range', `bytes ${from}-${from + length - 1}/${size}`)
  const init = { status: range ? 206 : status, headers }
  if (method === 'HEAD' || length === 0) return new Response(null, init)
  const key = workerAssetsKey(assets.ref, assets.image)
  const bytes = await openStore(ctx).get(key, { offset: assets.manifestBytes + offset + from, length })
  if (!bytes) throw new Error(`the bucket has no ${key}`)
  return new Response(bytes.body, init)
}

/** Redirects with a relative location: the worker does not see its own path prefix. */
function redirectTo(path: string, { url }: AssetRequest): Response {
  const { pathname, search } = new URL(url)
  const up = '../'.repeat(pathname.split('/').length - 2)
  const down = path.slice(1).split('/').map(encodeURIComponent).join('/')
  return new Response(null, { status: 307, headers: { location: (up + down || './') + search } })
}
