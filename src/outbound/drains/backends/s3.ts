import { PutObjectCommand, S3Client, S3ServiceException } from '@aws-sdk/client-s3'
import * as z from 'zod'
import { type Batch, backend, SendFailure, type Transport } from '../backend.ts'
import { Credential } from '../fields.ts'
import { gzip } from '../gzip.ts'

const Config = z.strictObject({
  s3_bucket: z.string().regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'must be a bucket name'),
  storage_region: z.string().regex(/^[a-z]{2}(-[a-z]+)+-\d$/, 'must be a region such as us-east-1'),
  access_key_id: z.string().regex(/^\w{16,128}$/, 'must be an access key id'),
  secret_access_key: Credential,
  batch_timeout: z.int().min(1_000).max(900_000).default(3_000),
})
type Config = z.output<typeof Config>

/** Writes each batch as gzipped JSON lines to `<ref>/<day>/<batch id>.json.gz`; a retry overwrites the object. */
export const s3 = backend<typeof Config>({
  config: Config,
  secrets: ['access_key_id', 'secret_access_key'],
  target: ({ storage_region, s3_bucket }) => ({
    field: 's3_bucket',
    url: `https://s3.${storage_region}.amazonaws.com/${s3_bucket}`,
  }),
  send: putBatch,
  lingerMs: ({ batch_timeout }) => batch_timeout,
})

async function putBatch(config: Config, { id, projectRef, at, rows }: Batch, transport: Transport): Promise<void> {
  const lines = rows.map((row) => `${JSON.stringify({ ...row, project: projectRef })}\n`)
  const command = new PutObjectCommand({
    Bucket: config.s3_bucket,
    Key: `${projectRef}/${at.toISOString().slice(0, 10)}/${id}.json.gz`,
    Body: await gzip(lines.join('')),
    ContentType: 'application/x-ndjson',
    ContentEncoding: 'gzip',
  })
  const client = new S3Client({
    region: config.storage_region,
    endpoint: `https://s3.${config.storage_region}.amazonaws.com`,
    credentials: { accessKeyId: config.access_key_id, secretAccessKey: config.secret_access_key },
    forcePathStyle: true,
    maxAttempts: 1,
    requestChecksumCalculation: 'WHEN_REQUIRED',
    requestHandler: { customFetch: (request: Request) => transport.fetch(request) },
  })
  try {
    await client.send(command, { abortSignal: transport.signal })
  } catch (error) {
    if (!(error instanceof S3ServiceException)) throw error
    const status = error.$metadata.httpStatusCode ?? 0
    throw new SendFailure('bad_status', `the bucket answered ${status}`, { status })
  }
}
