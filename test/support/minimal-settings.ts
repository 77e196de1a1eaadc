/** The settings that an installation cannot do without. */
export const MINIMAL_SETTINGS = {
  BASE_URL: 'https://api.example.com',
  DATABASE_URL: 'postgres://x@control.neon.tech/x',
  ENGINE: 'host',
  HOST_URL: 'https://host.example.com',
  HOST_KEY: 'x',
  DATABASE_HOST: 'x',
  DATABASE_PORT: '5432',
  ENCRYPTION_KEY: `k1:${Buffer.alloc(32).toString('base64')}`,
  S3_ENDPOINT: 'https://s3.example.com',
  S3_BUCKET: 'x',
  S3_ACCESS_KEY_ID: 'x',
  S3_SECRET_ACCESS_KEY: 'x',
}
