import { getMimeType } from 'hono/utils/mime'
import type { AssetManifest } from '../../../builder/asset-manifest.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { setNewest } from '../../../platform/bounded-map.ts'
import { isNotModified, rangeOf } from '../../../platform/http/conditional-request.ts'
import { workerAssetsKey } from '../../runtime/program-keys.ts'
import { findAsset, goesToAssets, type OpenedManifest } from './route.ts'

/** The static assets of an image. */
export interface Assets {
  ref: string
  image: string
  manifestBytes: number
}

/** Of 256 KiB each at most. */
const MANIFESTS_MAX = 64
/** An image never changes. */
const manifests = new Map<string, OpenedManifest>()

async function openManifest(ctx: SystemCtx, { ref, image, manifestBytes }: Assets): Promise<OpenedManifest> {
  const key = workerAssetsKey(ref, image)
  const known = manifests.get(key)
  const found = known ?? (await readManifest(ctx, key, manifestBytes))
  setNewest(manifests, key, found, MANIFESTS_MAX)
  return found
}

/** Written by us and by nobody else, so it is taken for what it says it is. */
async function readManifest(ctx: SystemCtx, key: string, length: number): Promise<OpenedManifest> {
  const found = await openStore(ctx).get(key, { offset: 0, length })
  if (!found) throw new Error(`the bucket has no ${key}`)
  const { files, ...manifest }: AssetManifest = await new Response(found.body).json()
  return { ...manifest, files: new Map(Object.entries(files)) }
}

type Asked = Pick<Request, 'url' | 'method' | 'headers'>

/** The answer of the assets to a request from outside; undefined where the program answers. */
export async function assetResponse(ctx: SystemCtx, assets: Assets, request: Asked): Promise<Response | undefined> {
  const manifest = await openManifest(ctx, assets)
  const goes = goesToAssets(manifest, pathOf(request), request.headers)
  return goes ? answer(ctx, assets, { manifest, request }) : undefined
}

/** The answer of the assets to a request of the program. */
export async function fetchAsset(ctx: SystemCtx, assets: Assets, request: Asked): Promise<Response> {
  return answer(ctx, assets, { manifest: await openManifest(ctx, assets), request })
}

/** What a segment hides behind `%2F` names no file. Slashes in a row count as one, as in no address of another host. */
function pathOf({ url }: Asked): string {
  const { pathname } = new URL(url)
  return pathname.split('/').map(decoded).join('/').replace(/\/+/g, '/')
}

function decoded(segment: string): string {
  try {
    const text = decodeURIComponent(segment)
    return text.includes('/') ? segment : text
  } catch {
    return segment
  }
}

/** Browsers ask each time whether it has changed. */
const CACHE_CONTROL = 'public, max-age=0, must-revalidate'

async function answer(
  ctx: SystemCtx,
  assets: Assets,
  { manifest, request }: { manifest: OpenedManifest; request: Asked },
): Promise<Response> {
  const { method, headers: asked } = request
  const found = findAsset(manifest, pathOf(request))
  if (!found) return new Response(null, { status: 404 })
  if (method !== 'GET' && method !== 'HEAD') return new Response(null, { status: 405, headers: { allow: 'GET, HEAD' } })
  if ('redirect' in found) return redirectTo(found.redirect, request)
  const { path, status } = found
  const [offset = 0, size = 0, tag = ''] = manifest.files.get(path) ?? []
  const etag = `"${tag}"`
  const headers = new Headers({ etag, 'cache-control': CACHE_CONTROL })
  if (status === 200 && isNotModified(asked, { etag })) return new Response(null, { status: 304, headers })
  headers.set('content-type', getMimeType(path) ?? 'application/octet-stream')
  headers.set('accept-ranges', 'bytes')
  const range = method === 'GET' && status === 200 ? rangeOf(asked, size, { etag }) : undefined
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

/** Relative: a worker is below a path of its host that it does not see. */
function redirectTo(path: string, { url }: Asked): Response {
  const { pathname, search } = new URL(url)
  const up = '../'.repeat(pathname.split('/').length - 2)
  const down = path.slice(1).split('/').map(encodeURIComponent).join('/')
  return new Response(null, { status: 307, headers: { location: (up + down || './') + search } })
}
