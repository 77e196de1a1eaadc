import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, vi } from 'vitest'
import { baseUrl, type Caller, type Reply } from './api.ts'

const WAIT_MS = 40_000

export type Spelling = 'workers' | 'compute'
export const TYPES = { workers: 'project_worker', compute: 'project_compute_instance' } as const

export const SPEC = { runtime: 'node', size: '2gb', exposure: 'public', instances: 1 }

export type Source = { [path: string]: string }

/** Packs a folder with these files as `tar czf` does. */
export function packed(source: Source, ...more: string[]): Uint8Array<ArrayBuffer> {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-context-'))
  try {
    for (const [path, contents] of Object.entries(source)) {
      mkdirSync(dirname(join(folder, 'source', path)), { recursive: true })
      writeFileSync(join(folder, 'source', path), contents)
    }
    execFileSync('tar', ['czf', join(folder, 'context.tar.gz'), '-C', join(folder, 'source'), ...more, '.'])
    return new Uint8Array(readFileSync(join(folder, 'context.tar.gz')))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Returns a worker of a project, as its developer uses it. */
export function workerOf(
  caller: Caller,
  ref: string,
  {
    name = `w-${crypto.randomUUID().slice(0, 8)}`,
    spelling = 'workers' as Spelling,
    base = baseUrl,
    pollMs = 250,
  } = {},
) {
  const path = `/v2/projects/${ref}/${spelling}/${name}`
  const type = TYPES[spelling]

  async function upload(bytes: BodyInit, contentType = ''): Promise<string> {
    const slot = await caller.post(`${path}/uploads`)
    expect(slot).toMatchObject({ status: 201 })
    const { id, attributes } = slot.body.data
    const headers = contentType ? { 'content-type': contentType } : undefined
    const put = await fetch(attributes.url, { method: attributes.method, body: bytes, headers })
    expect(put.status).toBe(200)
    return id
  }

  const deploy = (spec: Record<string, unknown>, uploadId?: string): Promise<Reply> =>
    caller.post(`${path}/deploy`, {
      data: { type, attributes: { spec: { ...SPEC, ...spec }, ...(uploadId && { context_upload_id: uploadId }) } },
    })

  const get = () => caller.get(path)

  /** Returns the worker once it is no longer building. */
  async function built() {
    return vi.waitFor(
      async () => {
        const reply = await get()
        expect(reply.status).toBe(200)
        expect(reply.body.data.attributes.build_state).not.toBe('building')
        return reply.body.data.attributes
      },
      { timeout: WAIT_MS, interval: pollMs },
    )
  }

  return {
    name,
    path,
    type,
    upload,
    deploy,
    get,
    built,
    /** Uploads, deploys and waits for the end of the build. */
    async ship(source: Source | Uint8Array<ArrayBuffer>, spec: Record<string, unknown> = {}) {
      const reply = await deploy(spec, await upload(source instanceof Uint8Array ? source : packed(source)))
      expect(reply).toMatchObject({ status: 202, body: { data: { attributes: { build_state: 'building' } } } })
      return built()
    },
    delete: () => caller.delete(path),
    url: (below = '') => new URL(`/p/${ref}/${spelling}/v1/${name}${below}`, base).href,
    call(below = '', init?: RequestInit) {
      return fetch(this.url(below), init)
    },
  }
}

/** Returns a program that answers with a text. */
export const saying = (text: string): Source => ({
  'index.js': `export default { fetch: () => new Response(${JSON.stringify(text)}) }`,
})
