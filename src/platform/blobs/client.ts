import { S3Client } from '@aws-sdk/client-s3'
import type { Config } from '../../config.ts'

const clients = new WeakMap<object, S3Client>()

/** No answer came. */
export class BucketUnreachable extends Error {
  override name = 'BucketUnreachable'
}

/** The way to the bucket. */
export function openNetwork(egress: Fetcher | undefined) {
  return async (request: Request | string, init?: RequestInit): Promise<Response> => {
    try {
      return await (egress ? egress.fetch(request, init) : fetch(request, init))
    } catch (cause) {
      throw new BucketUnreachable('the bucket cannot be reached', { cause })
    }
  }
}

/** The client of the bucket S3_BUCKET; one an isolate, since it holds no connection. */
export function openBlobs(config: Config, egress?: Fetcher): S3Client {
  const known = clients.get(egress ?? config)
  if (known) return known
  const send = openNetwork(egress)
  const client = new S3Client({
    endpoint: config.S3_ENDPOINT,
    region: config.S3_REGION,
    credentials: { accessKeyId: config.S3_ACCESS_KEY_ID, secretAccessKey: config.S3_SECRET_ACCESS_KEY },
    forcePathStyle: true,
    // With the default, streams go out in a chunked form that most servers refuse or store as it came.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { customFetch: (request: Request) => send(request) },
  })
  clients.set(egress ?? config, client)
  return client
}
