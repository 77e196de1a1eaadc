import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { V4MiniflareOptions } from 'miniflare'
import { s3EndpointAt } from './bucket.ts'
import { convertV4MiniflareOptions, Miniflare } from './miniflare.ts'
import { freePort, portError } from './ports.ts'

export interface S3Options {
  port?: number
  /** The folder for objects; without it they are in memory only. */
  folder?: string
  buckets: readonly string[]
  accessKeyId: string
  secretAccessKey: string
}

const NAME = 's3'
/** Names of the bindings that Miniflare's S3 API reads. */
const CREDENTIALS = 'MINIFLARE_R2_S3_CREDENTIALS'
const bucketBinding = (name: string) => `MINIFLARE_R2_S3_BUCKET_${name}`

export interface S3 {
  endpoint: string
  /** The port of Miniflare's own entry, which serves every object without a signature to programs of this machine. */
  openPort: number
  stop(): Promise<void>
}

/**
 * Serves S3-compatible buckets on 127.0.0.1: Cloudflare's local R2 behind its own S3 API, which checks signatures. The API has a
 * port of its own and a guard in front.
 */
export async function startS3(options: S3Options): Promise<S3> {
  const { folder, buckets, accessKeyId, secretAccessKey } = options
  const port = await freePort(options.port ?? 0, 's3')
  const credentials = Object.fromEntries(buckets.map((name) => [name, { accessKeyId, secretAccessKey }]))
  const worker = {
    name: NAME,
    compatibilityDate: '2026-01-01',
    compatibilityFlags: ['nodejs_compat'],
    modules: await modules(),
    bindings: { [CREDENTIALS]: credentials },
    r2Buckets: Object.fromEntries(buckets.map((name) => [bucketBinding(name), name])),
    unsafeDirectSockets: [{ host: '127.0.0.1', port }],
  }
  const miniflare = new Miniflare({
    ...convertV4MiniflareOptions({
      ...{ host: '127.0.0.1', port: 0, cf: false, logRequests: false },
      workers: [worker],
    } as unknown as V4MiniflareOptions),
    enableDevRegistry: false,
    resourcePersistencePath: folder,
  })
  try {
    const { port: openPort } = await miniflare.ready
    return { endpoint: s3EndpointAt(port), openPort: Number(openPort), stop: () => miniflare.dispose() }
  } catch (error) {
    await miniflare.dispose()
    throw portError(error, port, 's3')
  }
}

async function modules() {
  const miniflare = dirname(createRequire(import.meta.url).resolve('miniflare'))
  const files = {
    'guard.js': join(import.meta.dirname, 's3', 'guard.js'),
    's3.js': join(miniflare, 'workers', 'r2', 's3', 'index.worker.js'),
  }
  return Promise.all(
    Object.entries(files).map(async ([path, file]) => ({
      ...{ type: 'ESModule', path },
      contents: await readFile(file, 'utf8'),
    })),
  )
}
