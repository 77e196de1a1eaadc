import { S3Client } from '@aws-sdk/client-s3'
import { S3RequestPresigner } from '@aws-sdk/s3-request-presigner'
import type { Config } from '../../config.ts'

/** The bucket, with plain requests for bytes: sending them through the S3 client costs three times the CPU. */
export interface Bucket {
  name: string
  client: S3Client
  /** Returns a successful response; otherwise rejects with BucketError. Retries, unless the body is a stream. */
  request(method: 'GET' | 'PUT', key: string, options?: RequestOptions): Promise<Response>
}

interface RequestOptions {
  query?: Record<string, string>
  headers?: Record<string, string>
  body?: ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer>
}

/** The bucket sent no response, or not all of it. */
export class BucketUnreachable extends Error {
  override name = 'BucketUnreachable'
}

/** Error response of the bucket. */
export class BucketError extends Error {
  override name = 'BucketError'
  readonly status: number
  readonly code: string

  constructor(status: number, code: string) {
    super(`the bucket answered ${status} ${code}`)
    this.status = status
    this.code = code
  }
}

const ATTEMPTS = 3
const BACKOFF_MS = 100
const SIGNATURE_VALID_SECONDS = 900

const buckets = new WeakMap<object, Bucket>()

/** Opens the bucket, once per isolate, because it caches its signing key and holds no connection. */
export function openBucket(config: Config, egress?: Fetcher): Bucket {
  const known = buckets.get(egress ?? config)
  if (known) return known
  const send = async (request: Request | string, init?: RequestInit): Promise<Response> => {
    try {
      return await (egress ? egress.fetch(request, init) : fetch(request, init))
    } catch (cause) {
      throw new BucketUnreachable('the bucket cannot be reached', { cause })
    }
  }
  const client = createClient(config, send)
  const sign = createSigner(client, {
    endpoint: config.S3_ENDPOINT,
    bucket: config.S3_BUCKET,
    expiresInSeconds: SIGNATURE_VALID_SECONDS,
  })

  async function attempt(method: 'GET' | 'PUT', key: string, options: RequestOptions): Promise<Response> {
    const { query = {}, headers, body } = options
    const response = await send(await sign(method, key, query), { method, headers, body })
    if (response.ok) return response
    const [, code = ''] = /<Code>(\w+)</.exec(await response.text()) ?? []
    throw new BucketError(response.status, code)
  }

  async function request(method: 'GET' | 'PUT', key: string, options: RequestOptions = {}): Promise<Response> {
    const attempts = options.body instanceof ReadableStream ? 1 : ATTEMPTS
    for (let n = 1; ; n++) {
      try {
        return await attempt(method, key, options)
      } catch (error) {
        if (n === attempts || !isBucketUnavailable(error)) throw error
        await scheduler.wait(BACKOFF_MS * 2 ** n * Math.random())
      }
    }
  }

  const bucket = { name: config.S3_BUCKET, client, request }
  buckets.set(egress ?? config, bucket)
  return bucket
}

const createClient = (config: Config, send: (request: Request) => Promise<Response>): S3Client =>
  new S3Client({
    endpoint: config.S3_ENDPOINT,
    region: config.S3_REGION,
    credentials: { accessKeyId: config.S3_ACCESS_KEY_ID, secretAccessKey: config.S3_SECRET_ACCESS_KEY },
    forcePathStyle: true,
    // By default streams are sent in a chunked encoding, which most servers refuse or store undecoded.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { customFetch: send },
  })

/** Whether a request failed because of the state of the bucket and may succeed later. */
export function isBucketUnavailable(error: unknown): boolean {
  const status = statusOf(error)
  return error instanceof BucketUnreachable || status === 429 || (status >= 500 && status !== 501)
}

/** The S3 client sets the status even if it could not parse the response. */
function statusOf(error: unknown): number {
  if (error instanceof BucketError) return error.status
  return (error as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode ?? 0
}

const encodeKey = (key: string) =>
  key
    .split('/')
    .map((segment) =>
      encodeURIComponent(segment).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`),
    )
    .join('/')

interface SignerOptions {
  endpoint: string
  bucket: string
  expiresInSeconds: number
}

/** Creates presigned URLs for single requests. The signature does not cover headers. */
export function createSigner(client: S3Client, { endpoint, bucket, expiresInSeconds }: SignerOptions) {
  const presigner = new S3RequestPresigner({ ...client.config, credentials: client.config.credentials })
  const { protocol, hostname, port, pathname, origin } = new URL(endpoint)
  const folder = `${pathname.replace(/\/$/, '')}/${bucket}`
  return async function sign(method: string, key: string, query: Record<string, string> = {}): Promise<string> {
    const signed = await presigner.presign(
      {
        method,
        protocol,
        hostname,
        ...(port && { port: Number(port) }),
        path: `${folder}/${encodeKey(key)}`,
        query,
        headers: {},
      },
      { expiresIn: expiresInSeconds },
    )
    const pairs = Object.entries(signed.query ?? {}).map(
      ([name, value]) => `${name}=${encodeURIComponent(String(value))}`,
    )
    return `${origin}${signed.path}?${pairs.join('&')}`
  }
}
