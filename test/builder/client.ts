import { inject } from 'vitest'
import { createTestHarness } from 'wrangler'
import { startBuilder as start } from '../../dev/builder.ts'
import { builderWorker } from '../../dev/worker.ts'
import type { Image } from '../../src/builder/program-image.ts'
import {
  BuildResult,
  FILE_FIELD,
  type FunctionBuild,
  KEY_HEADER,
  ORGANIZATION_HEADER,
  type Probe,
  ProbeResult,
  SPEC_FIELD,
} from '../../src/builder/protocol.ts'

export type Files = Record<string, string | Uint8Array<ArrayBuffer>>

/** Starts the builder alone, with these settings. */
export async function startBuilder(vars: Record<string, string> = {}) {
  const harness = createTestHarness({ workers: [{ configPath: './src/builder/wrangler.toml', vars }] })
  const { origin } = (await harness.listen()).url
  return { ...builderAt(origin), stop: () => harness.close() }
}
export type Builder = Awaited<ReturnType<typeof startBuilder>>

/**
 * Starts the builder as `npm start` does: all its fetches go through the runtime, redirects and refused connections
 * included.
 */
export async function startBuilderProcess(bindings: Record<string, string> = {}, memoryMiB?: number) {
  const worker = await builderWorker({ bundle: inject('bundle'), bindings })
  const lines: string[] = []
  const onLine = (line: string) => void lines.push(line)
  const { address, key, ports, stop } = await start({ worker, onLine, memoryMiB })
  return { ...builderAt(`http://${address}`, { [KEY_HEADER]: key }), address, key, ports, lines, stop }
}
export type BuilderProcess = Awaited<ReturnType<typeof startBuilderProcess>>

function builderAt(origin: string, headers: Record<string, string> = {}) {
  async function send(spec: FunctionBuild, files: Files): Promise<BuildResult> {
    const form = new FormData()
    form.set(SPEC_FIELD, JSON.stringify(spec))
    for (const [path, contents] of Object.entries(files)) form.append(FILE_FIELD, new Blob([contents]), encodeURI(path))
    return BuildResult.parse(await post('/function', form))
  }

  async function post(
    path: string,
    body: FormData | string | Uint8Array<ArrayBuffer>,
    { signal = null, organizationId = '' }: { signal?: AbortSignal | null; organizationId?: string } = {},
  ): Promise<unknown> {
    const sent = { ...headers, [ORGANIZATION_HEADER]: organizationId }
    const response = await fetch(new URL(path, origin), { method: 'POST', headers: sent, body, signal })
    if (!response.ok) throw new Error(`the builder answered ${response.status}: ${await response.text()}`)
    return response.json()
  }

  return {
    post,
    send,
    async probe(program: Probe) {
      const result = ProbeResult.parse(await post('/probe', JSON.stringify(program)))
      return result as Partial<Extract<ProbeResult, { issues: unknown }>> &
        Partial<Extract<ProbeResult, { handlers: unknown }>>
    },
    async build(files: Files, spec: Partial<FunctionBuild> = {}): Promise<Image> {
      const result = await send({ entrypoint: 'index.ts', ...spec }, files)
      if ('image' in result) return result.image
      throw new Error(JSON.stringify(result, null, 2))
    },
    async issues(files: Files, spec: Partial<FunctionBuild> = {}) {
      const result = await send({ entrypoint: 'index.ts', ...spec }, files)
      return 'issues' in result ? result.issues : result
    },
  }
}
