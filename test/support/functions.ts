import { randomUUID } from 'node:crypto'
import { CopyObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { eq, sql } from 'drizzle-orm'
import { inject } from 'vitest'
import type { Image } from '../../src/builder/program-image.ts'
import { sealFunctionSecret } from '../../src/model/secrets/function.ts'
import { functionDeployments, functionSecrets, functions, invocations, projects } from '../../src/model/tables/index.ts'
import { imageKey } from '../../src/services/runtime/program-keys.ts'
import { control } from './api.ts'

/** The control database and the bucket in which functions are deployed. */
export interface Stores {
  db: typeof control
  encryptionKey: string
  s3: { endpoint: string; bucket: string; accessKeyId: string; secretAccessKey: string }
}

const stores: Stores = { db: control, encryptionKey: inject('encryptionKey'), s3: inject('s3') }

interface Fields {
  slug?: string
  verifyJwt?: boolean
  files?: Image['files']
  entrypoint?: string
  modules?: Image['modules']
}

/** Stores a function as a deployment does. `program` is JavaScript. */
export async function putFunction(ref: string, program: string, fields: Fields = {}, { db, s3 }: Stores = stores) {
  const { slug = `f-${randomUUID()}`, verifyJwt = false, files = {}, entrypoint = 'index.ts', modules = {} } = fields
  const at = new Date()
  const [deployment] = await db
    .insert(functionDeployments)
    .values({ projectRef: ref, slug, sha256: randomUUID(), entrypoint, createdAt: at })
    .returning()
  if (!deployment) throw new Error('no deployment')
  const image: Image = { main: 'function.js', modules: { 'function.js': { js: program }, ...modules }, files }
  await putImage(s3, imageKey(ref, deployment.id), image)
  const { id: deploymentId } = deployment
  const values = { projectRef: ref, slug, name: slug, status: 'ACTIVE', version: 1, verifyJwt, deploymentId } as const
  const [row] = await db
    .insert(functions)
    .values({ ...values, createdAt: at, updatedAt: at })
    .onConflictDoUpdate({
      target: [functions.projectRef, functions.slug],
      set: { deploymentId, verifyJwt, version: sql`${functions.version} + 1` },
    })
    .returning()
  if (!row) throw new Error('no function')
  return { slug, id: row.id, deploymentId }
}

async function putImage({ endpoint, bucket: Bucket, ...credentials }: Stores['s3'], Key: string, image: Image) {
  const client = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
  await client.send(new PutObjectCommand({ Bucket, Key, Body: JSON.stringify(image) }))
}

export async function putSecret(ref: string, name: string, value: string, { db, encryptionKey }: Stores = stores) {
  const sealedValue = await sealFunctionSecret(encryptionKey, ref, name, value)
  const row = { projectRef: ref, name, sealedValue, digest: '', updatedAt: new Date() }
  await db
    .insert(functionSecrets)
    .values(row)
    .onConflictDoUpdate({ target: [functionSecrets.projectRef, functionSecrets.name], set: row })
  await db
    .update(projects)
    .set({ secretsGeneration: sql`${projects.secretsGeneration} + 1` })
    .where(eq(projects.ref, ref))
}

export const invocationsOf = (programId: string, { db }: Stores = stores) =>
  db.select().from(invocations).where(eq(invocations.programId, programId)).orderBy(invocations.at)

export async function copyImage(ref: string, from: string, to: string, { s3 }: Stores = stores): Promise<void> {
  const { endpoint, bucket: Bucket, ...credentials } = s3
  const client = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
  const CopySource = `${Bucket}/${imageKey(ref, from)}`
  await client.send(new CopyObjectCommand({ Bucket, Key: imageKey(ref, to), CopySource }))
}
