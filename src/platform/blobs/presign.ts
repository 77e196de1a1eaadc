import { S3RequestPresigner } from '@aws-sdk/s3-request-presigner'
import type { PlatformCtx } from '../context.ts'
import { encodeKey } from './bucket.ts'
import { openBlobs } from './client.ts'

/** Creates a URL with which anybody may PUT bytes of any type at the key, at the endpoint for clients. */
export async function presignPut(
  { config, bindings }: Pick<PlatformCtx, 'config' | 'bindings'>,
  key: string,
  { expiresInSeconds }: { expiresInSeconds: number },
): Promise<string> {
  const client = openBlobs(config, bindings.SERVICES_EGRESS)
  const presigner = new S3RequestPresigner({ ...client.config, credentials: client.config.credentials })
  const { protocol, hostname, port, pathname, origin } = new URL(config.S3_PUBLIC_ENDPOINT ?? config.S3_ENDPOINT)
  const { path, query } = await presigner.presign(
    {
      method: 'PUT',
      protocol,
      hostname,
      ...(port && { port: Number(port) }),
      path: `${pathname.replace(/\/$/, '')}/${config.S3_BUCKET}/${encodeKey(key)}`,
      query: {},
      headers: {},
    },
    { expiresIn: expiresInSeconds },
  )
  const pairs = Object.entries(query ?? {}).map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`)
  return `${origin}${path}?${pairs.join('&')}`
}
