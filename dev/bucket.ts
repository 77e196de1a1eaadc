import type { S3Settings } from '../host/backups/store.ts'
import type { LocalSecrets } from './secrets.ts'

export const BUCKET = 'pilothouse'

/** The S3 API of a local bucket at this port. */
export const s3EndpointAt = (port: number): string => `http://127.0.0.1:${port}${S3_PATH}`
/** Path of the S3 API inside Miniflare. */
const S3_PATH = '/cdn-cgi/local/r2/s3'

/** Settings with which programs on this machine reach the bucket of a data folder. */
export const bucketSettings = (endpoint: string, secrets: LocalSecrets): S3Settings => ({
  ...{ endpoint, region: 'auto', bucket: BUCKET },
  accessKeyId: secrets.S3_ACCESS_KEY_ID,
  secretAccessKey: secrets.S3_SECRET_ACCESS_KEY,
})
