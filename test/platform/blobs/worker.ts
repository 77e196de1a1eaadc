import type { Config } from '../../../src/config.ts'
import type { Bindings } from '../../../src/platform/bindings.ts'
import { openBucket } from '../../../src/platform/blobs/bucket.ts'
import { copyParts } from '../../../src/platform/blobs/multipart.ts'
import { put } from '../../../src/platform/blobs/put.ts'
import { readPieces } from '../../../src/platform/blobs/ranged-read.ts'
import { type Blobs, openStore } from '../../../src/platform/blobs/store.ts'
import { readForm } from '../../../src/services/storage/form.ts'

/** Exposes the blob store to the tests: one call for each request, its result as JSON, errors by name. */
export const BlobStore = {
  async fetch(request: Request, bindings: Bindings & Config, execution: ExecutionContext) {
    const url = new URL(request.url)
    const { operation = '', ...values }: Record<string, string> = Object.fromEntries(url.searchParams)
    const store = openStore({ config: bindings, bindings, waitUntil: (work) => execution.waitUntil(work) })
    try {
      return await operations[operation as keyof typeof operations]({ request, bindings, values, store })
    } catch (error) {
      const { name, message, keys } = error as Error & { keys?: string[] }
      return Response.json({ name, message, keys }, { status: 500 })
    }
  },
} satisfies ExportedHandler<Bindings & Config>

interface Call {
  request: Request
  bindings: Bindings & Config
  values: Record<string, string>
  store: Blobs
}

const streamOf = (request: Request) => request.body ?? new Blob([]).stream()

const operations = {
  async put({ request, store, values: { key = '', size } }: Call) {
    const options = { size: Number(size ?? request.headers.get('content-length')), contentType: 'text/x-test' }
    return Response.json(await store.put(key, streamOf(request), options))
  },
  /** Stores a body with a limit of silence that a test can wait for. */
  async putSoon({ request, bindings, values: { key = '' } }: Call) {
    const size = Number(request.headers.get('content-length'))
    const target = { key, size, silenceMsMax: 1_000 }
    return Response.json(await put(openBucket(bindings, bindings.SERVICES_EGRESS), target, streamOf(request)))
  },
  async putBytes({ request, store, values: { key = '', size } }: Call) {
    const bytes = new Uint8Array(await request.arrayBuffer())
    return Response.json(await store.put(key, bytes, { size: Number(size) }))
  },
  async putUnknown({ request, store, values: { key = '', sizeMax } }: Call) {
    return Response.json(await store.putUnknown(key, streamOf(request), { sizeMax: Number(sizeMax) }))
  },
  async get({ store, values: { key = '', offset, length } }: Call) {
    const range = offset === undefined ? undefined : { offset: Number(offset), length: Number(length) }
    const found = await store.get(key, range)
    if (!found) return new Response(null, { status: 404 })
    return new Response(found.body, { headers: { 'x-size': String(found.size) } })
  },
  /** Reads as for a long object, with small pieces. */
  async pieces({ store, values: { key = '', offset, length, pieceBytes } }: Call) {
    const range = { offset: Number(offset), length: Number(length) }
    const found = await readPieces(range, (piece) => store.get(key, piece), Number(pieceBytes))
    return new Response(found?.body, { headers: { 'x-size': String(found?.sizeOfAll) } })
  },
  /** Reads the first bytes, then waits until another reader has read everything. */
  async beginPieces({ store, values: { key = '', size, pieceBytes } }: Call) {
    const range = { offset: 0, length: Number(size) }
    const begun = await readPieces(range, (piece) => store.get(key, piece), Number(pieceBytes))
    const reader = begun?.body?.getReader()
    await reader?.read()
    const others = (await new Response((await store.get(key))?.body).arrayBuffer()).byteLength
    await reader?.cancel()
    return Response.json({ others })
  },
  async copy({ store, values: { from = '', to = '', size } }: Call) {
    return Response.json((await store.copy(from, to, { size: Number(size) })) ?? null)
  },
  /** Copies as for an object that is too long for one request, with small parts. */
  async copyParts({ bindings, values: { from = '', to = '', size, partSize } }: Call) {
    const bucket = openBucket(bindings, bindings.SERVICES_EGRESS)
    return Response.json(await copyParts(bucket, { from, to, size: Number(size), partSize: Number(partSize) }))
  },
  async remove({ request, store }: Call) {
    await store.remove(await request.json<string[]>())
    return Response.json(null)
  },
  async list({ store, values: { prefix = '', after, count } }: Call) {
    return Response.json(await store.list(prefix, { after, count: Number(count) }))
  },
  async form({ request, store, values: { key = '', sizeMax } }: Call) {
    const { fields, file } = await readForm(request.headers.get('content-type') ?? '', streamOf(request))
    const before = Object.fromEntries(fields)
    const stored = file && (await store.putUnknown(key, file.body, { sizeMax: Number(sizeMax) }))
    return Response.json({ before, after: Object.fromEntries(fields), contentType: file?.contentType, stored })
  },
}
