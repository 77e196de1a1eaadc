import type { S3Settings } from '../host/backups/store.ts'
import type { LocalSecrets } from './secrets.ts'

export const BUCKET = 'pilothouse'

/** Settings with which programs on this machine reach the bucket of a data folder. */
export const bucketSettings = (endpoint: string, secrets: LocalSecrets): S3Settings => ({
  ...{ endpoint, region: 'auto', bucket: BUCKET },
  accessKeyId: secrets.S3_ACCESS_KEY_ID,
  secretAccessKey: secrets.S3_SECRET_ACCESS_KEY,
})
