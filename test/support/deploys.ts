import { DeleteObjectsCommand, ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3'
import { expect, inject } from 'vitest'
import type { Caller, Reply } from './api.ts'

export const HELLO = 'Deno.serve(() => new Response("hello"))\n'

interface Deployed {
  slug?: string
  query?: string
  files?: Record<string, string | Uint8Array<ArrayBuffer>>
  metadata?: Record<string, unknown>
}

export function formOf({ files = { 'index.ts': HELLO }, metadata = {} }: Deployed): FormData {
  const form = new FormData()
  for (const [path, contents] of Object.entries(files)) form.append('file', new Blob([contents]), path)
  form.set('metadata', JSON.stringify({ entrypoint_path: Object.keys(files)[0], ...metadata }))
  return form
}

export const tryDeploy = (caller: Caller, ref: string, deployed: Deployed = {}): Promise<Reply> => {
  const { slug = 'hello', query = '' } = deployed
  return caller.send('POST', `/v1/projects/${ref}/functions/deploy?slug=${slug}${query}`, { raw: formOf(deployed) })
}

// biome-ignore lint/suspicious/noExplicitAny: tests read replies whose shape is what they check
export async function deploy(caller: Caller, ref: string, deployed: Deployed = {}): Promise<any> {
  const reply = await tryDeploy(caller, ref, deployed)
  expect(reply).toMatchObject({ status: 201 })
  return reply.body
}

/** The files of a function as a client downloads them. */
export async function download(caller: Caller, ref: string, slug: string): Promise<Record<string, string>> {
  const { status, headers, body } = await caller.get(`/v1/projects/${ref}/functions/${slug}/body`)
  expect(status).toBe(200)
  const form = await new Response(body, { headers: { 'content-type': headers.get('content-type') ?? '' } }).formData()
  const files = form.getAll('file').map(async (file) => (file instanceof File ? [file.name, await file.text()] : []))
  return Object.fromEntries(await Promise.all(files))
}

const { endpoint, bucket: Bucket, ...credentials } = inject('s3')
const bytes = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })

/** Returns the bucket's keys of a project's functions: a source and an image for each deployment. */
export async function keysOf(ref: string): Promise<string[]> {
  const { Contents = [] } = await bytes.send(new ListObjectsV2Command({ Bucket, Prefix: `projects/${ref}/functions/` }))
  return Contents.map(({ Key = '' }) => Key)
}

export async function removeKeys(keys: readonly string[]): Promise<void> {
  await bytes.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects: keys.map((Key) => ({ Key })) } }))
}
