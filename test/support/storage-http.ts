import { ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3'
import { eq } from 'drizzle-orm'
import { expect, inject, vi } from 'vitest'
import { projects } from '../../src/model/tables/index.ts'
import type { Claims } from '../../src/platform/jwt/credential.ts'
import { unseal } from '../../src/platform/secrets/seal.ts'
import { signClaims } from '../../src/services/gateway/credentials.ts'
import { adminClient } from '../instances.ts'
import { as, control, type Reply } from './api.ts'
import type { TestStorage } from './storage.ts'

export interface Call {
  body?: unknown
  headers?: Record<string, string>
}

/**
 * Returns the storage server as the holder of a token calls it; text and bytes are sent unchanged, anything else as
 * JSON.
 */
export function calling({ url }: Pick<TestStorage, 'url'>, token?: string) {
  const caller = as(token)
  return (request: string, { body, headers = {} }: Call = {}): Promise<Reply> => {
    const [method = '', path = ''] = request.split(/ (.*)/)
    const isRaw = body === undefined || typeof body === 'string' || body instanceof Uint8Array
    return caller.send(method, url + path, {
      raw: isRaw ? (body as BodyInit) : JSON.stringify(body),
      headers: isRaw ? headers : { 'content-type': 'application/json', ...headers },
    })
  }
}

/** Returns the code that clients branch on. */
export const codeOf = ({ status, body }: Reply): unknown => (status === 200 ? 200 : (body.code ?? status))

/** Signs tokens as the project's own authentication does. */
export async function signerOf({ ref }: Pick<TestStorage, 'ref'>) {
  const [row] = await control.select().from(projects).where(eq(projects.ref, ref))
  const jwtSecret = await unseal(inject('encryptionKey'), row?.sealedJwtSecret ?? '', `projects/${ref}/jwt_secret`)
  const sign = (claims: Claims, { seconds = 3600, at = new Date() } = {}) =>
    signClaims({ jwtSecret }, claims, seconds, at)
  return { jwtSecret, sign, user: (sub: string) => sign({ role: 'authenticated', sub }) }
}

/** Opens the project's database as the superuser, which tests use instead of the owner if they are not about rights. */
export async function openSql({ ref }: Pick<TestStorage, 'ref'>) {
  const client = await adminClient(ref)
  await client.query('set search_path = public, extensions')
  return {
    sql: async (query: string, values?: unknown[]) => (await client.query(query, values)).rows,
    close: () => client.end(),
  }
}
export type Sql = Awaited<ReturnType<typeof openSql>>['sql']

const bytes = new S3Client({
  endpoint: inject('s3').endpoint,
  region: 'auto',
  credentials: inject('s3'),
  forcePathStyle: true,
})

/**
 * Checks that every object of the project has its bytes, and that no bytes exist without a row, an upload or a
 * pending removal.
 */
export async function expectNoStrayBytes({ ref }: Pick<TestStorage, 'ref'>, sql: Sql): Promise<void> {
  const Prefix = `projects/${ref}/storage/`
  await vi.waitFor(async () => {
    const { Contents = [] } = await bytes.send(new ListObjectsV2Command({ Bucket: inject('s3').bucket, Prefix }))
    const rows = await sql(
      `select version from storage.objects union select version from pgbouncer.removed_versions
        union select tail::text from pgbouncer.resumable_uploads where tail is not null`,
    )
    expect(Contents.map(({ Key = '' }) => Key.slice(Prefix.length)).sort()).toEqual(
      rows.map(({ version }) => version).sort(),
    )
  }, 60_000)
}
