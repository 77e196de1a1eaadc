import type { PlatformCtx } from '../context.ts'
import { createSigner, openBucket } from './bucket.ts'

/** Creates a URL with which anybody may PUT bytes of any type at the key, at the endpoint for clients. */
export function presignPut(
  { config, bindings }: Pick<PlatformCtx, 'config' | 'bindings'>,
  key: string,
  { expiresInSeconds }: { expiresInSeconds: number },
): Promise<string> {
  const endpoint = config.S3_PUBLIC_ENDPOINT ?? config.S3_ENDPOINT
  const { client } = openBucket(config, bindings.SERVICES_EGRESS)
  return createSigner(client, { endpoint, bucket: config.S3_BUCKET, expiresInSeconds })('PUT', key)
}
