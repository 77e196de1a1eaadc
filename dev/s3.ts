import { Miniflare } from 'miniflare'
import { portError } from './ports.ts'

export interface S3Options {
  port?: number
  /** Where objects are kept; without it they are gone at the end. */
  folder?: string
  buckets: readonly string[]
  accessKeyId: string
  secretAccessKey: string
}

const WORKER = 'export default { fetch: () => new Response("S3 is at /cdn-cgi/local/r2/s3") }'

/** Serves S3-compatible buckets on 127.0.0.1: Cloudflare's local R2 behind its own S3 API, which checks signatures. */
export async function startS3(options: S3Options): Promise<{ endpoint: string; stop(): Promise<void> }> {
  const { port = 0, folder, buckets, accessKeyId, secretAccessKey } = options
  const dev = { experimentalS3Credentials: { accessKeyId, secretAccessKey } }
  const miniflare = new Miniflare({
    host: '127.0.0.1',
    port,
    cf: false,
    logRequests: false,
    enableDevRegistry: false,
    resourcePersistencePath: folder,
    workers: [
      {
        config: {
          name: 's3',
          compatibilityDate: '2026-11-01',
          manifest: { mainModule: 'index.mjs', modules: { 'index.mjs': { type: 'esm', contents: WORKER } } },
          env: Object.fromEntries(buckets.map((name, i) => [`BUCKET_${i}`, { type: 'r2', name, dev }])),
        },
      },
    ],
  })
  try {
    const url = await miniflare.ready
    return { endpoint: new URL('/cdn-cgi/local/r2/s3', url).href, stop: () => miniflare.dispose() }
  } catch (error) {
    await miniflare.dispose()
    throw portError(error, port, 's3')
  }
}
