import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { getSignedUrl } from '@aws-sdk/s3-request-presigner'
import type pg from 'pg'
import { startS3 } from '../../dev/s3.ts'
import type { Row, Statement } from '../../src/engine/engine.ts'
import type { OpenedProject } from '../../src/services/gateway/open-project.ts'
import type { Storage } from '../../src/services/storage/database.ts'
import { get, type Request, send } from '../client.ts'

/** A context for the storage server whose statements go directly to Postgres, on one connection. */
export function directStorage(project: OpenedProject, client: pg.Client): Storage {
  const engine = { runBatch: ({ statements }: { statements: readonly Statement[] }) => runBatch(client, statements) }
  // The part of a context that the statements need; it does not record, once a minute, that a sweep is due.
  const ctx = { engine, now: () => new Date(), waitUntil: () => {}, log: { error: () => {} } }
  return { project, ctx: ctx as unknown as Storage['ctx'] }
}

/** Captures the statements that a look-up or a list sends in its one round trip. */
export async function captureStatements(work: (storage: Storage) => Promise<unknown>, project: OpenedProject) {
  const captured: (readonly Statement[])[] = []
  const engine = {
    runBatch: async ({ statements }: { statements: readonly Statement[] }) => {
      captured.push(statements)
      return statements.map(() => [])
    },
  }
  const ctx = { engine, now: () => new Date() }
  // Ignored: the work fails because the captured statements return no rows.
  await work({ project, ctx: ctx as unknown as Storage['ctx'] }).catch(() => {})
  const [statements] = captured
  if (!statements || captured.length > 1) throw new Error(`${captured.length} round trips`)
  return statements
}

const names = new Map<string, string>()

async function runBatch(client: pg.Client, statements: readonly Statement[]): Promise<Row[][]> {
  const query = async ({ text, params }: Statement): Promise<Row[]> => {
    const name = names.get(text) ?? `s${names.size}`
    names.set(text, name)
    const { rows } = await client.query({ name, text, values: [...params] })
    return rows
  }
  if (statements.length === 1) return Promise.all(statements.map(query))
  const transaction = [client.query('BEGIN'), ...statements.map(query), client.query('COMMIT')]
  const results = await Promise.all(transaction)
  return results.slice(1, -1) as Row[][]
}

export interface DirectBucket {
  port: number
  put(key: string, body: Buffer, contentType: string): Promise<Request>
  get(key: string): Promise<Request>
}

const BUCKET = 'floor'
const KEYS = { accessKeyId: 'floor', secretAccessKey: 'floor-floor-floor' }

/** Starts a bucket like the Worker's, which is reached by presigned requests like the Worker's. */
export async function withDirectBucket<T>(work: (bucket: DirectBucket) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-bench-s3-'))
  const { endpoint, stop } = await startS3({ folder, buckets: [BUCKET], ...KEYS })
  const client = new S3Client({
    endpoint,
    region: 'auto',
    credentials: KEYS,
    forcePathStyle: true,
    requestChecksumCalculation: 'WHEN_REQUIRED',
  })
  const { host, port } = new URL(endpoint)
  const pathOf = async (command: GetObjectCommand | PutObjectCommand) => {
    const { pathname, search } = new URL(await getSignedUrl(client, command, { expiresIn: 900 }))
    return pathname + search
  }
  try {
    return await work({
      port: Number(port),
      async put(Key, body, contentType) {
        const headers = { host, 'content-type': contentType }
        return send('PUT', await pathOf(new PutObjectCommand({ Bucket: BUCKET, Key })), body, headers)
      },
      async get(Key) {
        return get(await pathOf(new GetObjectCommand({ Bucket: BUCKET, Key })), { host })
      },
    })
  } finally {
    await stop()
    await rm(folder, { recursive: true, force: true })
  }
}
