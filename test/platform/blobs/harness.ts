import { convertV4MiniflareOptions, Miniflare, type V4MiniflareOptions } from 'miniflare'
import { inject } from 'vitest'
import { modulesOf } from '../../../dev/worker.ts'
import { BUCKET, CREDENTIALS } from './bucket.ts'

const ENTRYPOINT = 'BlobStore'

/** Starts worker.ts, which is an entry point of the run's Worker. */
export async function startBlobsWorker(endpoint: string) {
  const folder = inject('bundle')
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      host: '127.0.0.1',
      cf: false,
      logRequests: false,
      workers: [
        {
          name: 'blobs',
          rootPath: folder,
          modulesRoot: '.',
          modules: await modulesOf(folder),
          compatibilityDate: '2026-11-01',
          compatibilityFlags: ['nodejs_compat', 'global_fetch_strictly_public'],
          bindings: {
            S3_ENDPOINT: endpoint,
            S3_REGION: 'auto',
            S3_BUCKET: BUCKET,
            S3_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
            S3_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
          },
          serviceBindings: { SERVICES_EGRESS: { network: { allow: ['private'] } } },
          unsafeDirectSockets: [{ host: '127.0.0.1', port: 0, entrypoint: ENTRYPOINT }],
        },
      ],
    } as V4MiniflareOptions),
  )
  await miniflare.ready
  const { origin } = await miniflare.unsafeGetDirectURL('blobs', ENTRYPOINT)
  return {
    url: (operation: string, values: Record<string, string | number> = {}) =>
      `${origin}/?${new URLSearchParams({ operation, ...stringsOf(values) })}`,
    stop: () => miniflare.dispose(),
  }
}

const stringsOf = (values: Record<string, string | number>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, String(value)]))
