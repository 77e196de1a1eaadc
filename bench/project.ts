import { setTimeout as delay } from 'node:timers/promises'
import { bearer } from './client.ts'

export const PASSWORD = 'correct horse battery staple'

const HEALTHY_MS_MAX = 60_000

/** Creates a project through the API, and waits until it is healthy. */
export async function createProject(port: number, token: string, fields: Record<string, string>): Promise<string> {
  const projects = `http://127.0.0.1:${port}/v1/projects`
  const headers = { ...bearer(token), 'content-type': 'application/json' }
  const reply = await fetch(projects, { method: 'POST', headers, body: JSON.stringify(fields) })
  if (!reply.ok) throw new Error(`the project was not created: ${await reply.text()}`)
  const { ref } = (await reply.json()) as { ref: string }
  for (const until = performance.now() + HEALTHY_MS_MAX; performance.now() < until; await delay(500)) {
    const project = (await (await fetch(`${projects}/${ref}`, { headers })).json()) as { status: string }
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
