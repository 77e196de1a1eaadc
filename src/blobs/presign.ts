import { S3RequestPresigner } from '@aws-sdk/s3-request-presigner'
import type { SystemCtx } from '../env.ts'
import { encodeKey } from './bucket.ts'
import { openBlobs } from './client.ts'

interface Allowed {
  /** The only one that the request may have. */
  contentType: string
  expiresInSeconds: number
}

/** A URL under which anybody may PUT bytes at a key, at the endpoint that clients reach. */
export async function presignPut(
  { config, bindings }: Pick<SystemCtx, 'config' | 'bindings'>,
  key: string,
  { contentType, expiresInSeconds }: Allowed,
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
      headers: { 'content-type': contentType },
    },
    {
      expiresIn: expiresInSeconds,
      signableHeaders: new Set(['host', 'content-type']),
      unhoistableHeaders: new Set(['content-type']),
    },
  )
  const pairs = Object.entries(query ?? {}).map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`)
  return `${origin}${path}?${pairs.join('&')}`
}
