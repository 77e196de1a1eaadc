import { S3Client } from '@aws-sdk/client-s3'
import type { Config } from '../../config.ts'

const clients = new WeakMap<object, S3Client>()

/** The bucket sent no response, or not all of it. */
export class BucketUnreachable extends Error {
  override name = 'BucketUnreachable'
}

/** Returns the fetch function for the bucket. */
export function openNetwork(egress: Fetcher | undefined) {
  return async (request: Request | string, init?: RequestInit): Promise<Response> => {
    try {
      return await (egress ? egress.fetch(request, init) : fetch(request, init))
    } catch (cause) {
      throw new BucketUnreachable('the bucket cannot be reached', { cause })
    }
  }
}

/** Opens the S3 client of the bucket, once per isolate, as it holds no connection. */
export function openBlobs(config: Config, egress?: Fetcher): S3Client {
  const known = clients.get(egress ?? config)
  if (known) return known
  const send = openNetwork(egress)
  const client = new S3Client({
    endpoint: config.S3_ENDPOINT,
    region: config.S3_REGION,
    credentials: { accessKeyId: config.S3_ACCESS_KEY_ID, secretAccessKey: config.S3_SECRET_ACCESS_KEY },
    forcePathStyle: true,
    // By default streams are sent in a chunked encoding, which most servers refuse or store undecoded.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { customFetch: (request: Request) => send(request) },
  })
  clients.set(egress ?? config, client)
  return client
}
