import { expect } from 'vitest'
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
