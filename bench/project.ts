import { setTimeout as delay } from 'node:timers/promises'
import { bearer } from './client.ts'

export const PASSWORD = 'correct horse battery staple'

const HEALTHY_MS_MAX = 60_000

type Fields = Record<string, string>

/** Creates a project through the API without waiting for its database. Returns its ref. */
export async function beginProject(port: number, token: string, fields: Fields): Promise<string> {
  const reply = await fetch(`http://127.0.0.1:${port}/v1/projects`, {
    method: 'POST',
    headers: { ...bearer(token), 'content-type': 'application/json' },
    body: JSON.stringify(fields),
  })
  if (!reply.ok) throw new Error(`the project was not created: ${await reply.text()}`)
  return ((await reply.json()) as { ref: string }).ref
}

/** Creates a project through the API, and waits until it is healthy. Returns its ref. */
export async function createProject(port: number, token: string, fields: Fields): Promise<string> {
  const ref = await beginProject(port, token, fields)
  const url = `http://127.0.0.1:${port}/v1/projects/${ref}`
  for (const until = performance.now() + HEALTHY_MS_MAX; performance.now() < until; await delay(500)) {
    const project = (await (await fetch(url, { headers: bearer(token) })).json()) as { status: string }
    if (project.status === 'ACTIVE_HEALTHY') return ref
  }
  throw new Error(`the project ${fields.name} did not become healthy`)
}

/** The connection string of the project's owner. */
export const ownerUrl = (gatewayPort: number, ref: string): URL =>
  new URL(`postgresql://postgres.${ref}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${gatewayPort}/postgres`)

interface FunctionSource {
  ref: string
  slug: string
  code: string
}

/** Deploys a function of one file that needs no token. */
export async function deployFunction(port: number, token: string, { ref, slug, code }: FunctionSource): Promise<void> {
  const form = new FormData()
  form.set('metadata', JSON.stringify({ entrypoint_path: 'index.ts', verify_jwt: false }))
  form.set('file', new Blob([code]), 'index.ts')
  const url = `http://127.0.0.1:${port}/v1/projects/${ref}/functions/deploy?slug=${slug}`
  const reply = await fetch(url, { method: 'POST', headers: bearer(token), body: form })
  if (!reply.ok) throw new Error(`Cannot deploy ${slug}: ${reply.status} ${await reply.text()}`)
}
