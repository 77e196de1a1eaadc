import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { convertV4MiniflareOptions, Miniflare } from 'miniflare'
import { bearer } from './client.ts'
import type { Environment } from './environment.ts'
import { figuresOf } from './measure.ts'
import { createProject, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { inTurn, seedOrganization, seedOwners, seedTokens } from './seed.ts'

const ROUNDS = 30
const PER_CALLER = 10
const RATIO_MAX = 3

type Files = Record<string, string>

/** Ten files, different in each round, so that no cache of an earlier build can answer. */
function filesOf(round: number): Files {
  const files: Files = {
    'functions/hello/index.ts': `import { all } from '../_shared/part0.ts'
      const answer: string = all().join(' ')
      Deno.serve(() => new Response(answer))`,
  }
  for (let n = 0; n < 9; n += 1) {
    const next = n < 8 ? `import { all as rest } from './part${n + 1}.ts'` : 'const rest = (): string[] => []'
    files[`functions/_shared/part${n}.ts`] = `${next}
      interface Part { readonly round: number; readonly name: string }
      const part: Part = { round: ${round}, name: 'part ${n}' }
      export const all = (): string[] => [\`\${part.round} \${part.name}\`, ...rest()]`
  }
  return files
}

const isAnswer = (text: string, round: number) => text.startsWith(`${round} part 0 ${round} part 1`)

/** Measures the time from source to first answer: through the API, and with only the bundler program and an isolate. */
export async function deploy({ port, control }: Environment, report: Report): Promise<void> {
  const organization = await seedOrganization(control, 'deploy', 0)
  const userIds = await seedOwners(control, [organization], Math.ceil((ROUNDS + 1) / PER_CALLER) + 1)
  const tokens = await seedTokens(control, userIds, userIds.length)
  const fields = { name: 'deploy', organization_slug: organization.slug, db_pass: PASSWORD }
  const ref = await createProject(port, tokens[0] ?? '', fields)
  const nextToken = inTurn(tokens)
  const bare = await openBare()
  const ours: number[] = []
  const native: number[] = []
  try {
    for (let round = 0; round <= ROUNDS; round += 1) {
      const files = filesOf(round)
      const [nativeMs, oursMs] = [
        await timed(() => bare.answer(files), round),
        await timed(() => viaApi({ port, ref, token: nextToken() }, files), round),
      ]
      if (round === 0) continue
      native.push(nativeMs)
      ours.push(oursMs)
    }
  } finally {
    await bare.stop()
  }
  report.title(`Deploy to first answer: a function of 10 files (${ROUNDS} rounds, interleaved)`)
  const [api, alone] = [figuresOf(ours), figuresOf(native)]
  report.table({ 'through the API': api, 'esbuild and an isolate': alone })
  report.ratio({ name: 'the API over esbuild and an isolate', of: api, to: alone, bound: RATIO_MAX })
}

async function timed(answer: () => Promise<string>, round: number): Promise<number> {
  const startedAt = performance.now()
  const text = await answer()
  if (!isAnswer(text, round)) throw new Error(`a wrong answer: ${text}`)
  return performance.now() - startedAt
}

interface Target {
  port: number
  ref: string
  token: string
}

async function viaApi({ port, ref, token }: Target, files: Files): Promise<string> {
  const form = new FormData()
  for (const [path, contents] of Object.entries(files)) form.append('file', new Blob([contents]), path)
  form.append(
    'metadata',
    JSON.stringify({ entrypoint_path: 'functions/hello/index.ts', name: 'hello', verify_jwt: false }),
  )
  const origin = `http://127.0.0.1:${port}`
  const address = `${origin}/v1/projects/${ref}/functions/deploy?slug=hello`
  const deployed = await fetch(address, { method: 'POST', headers: bearer(token), body: form })
  if (!deployed.ok) throw new Error(`not deployed: ${await deployed.text()}`)
  await deployed.arrayBuffer()
  return (await fetch(`${origin}/p/${ref}/functions/v1/hello`)).text()
}

/** The minimum: the bundler's own program, and a running runtime that loads what it makes. */
async function openBare() {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-bench-deploy-'))
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      cf: false,
      compatibilityDate: '2026-11-01',
      modules: [{ type: 'ESModule', path: 'host.js', contents: HOST }],
      workerLoaders: { LOADER: {} },
    }),
  )
  const origin = await miniflare.ready
  return {
    async answer(files: Files): Promise<string> {
      for (const [path, contents] of Object.entries(files)) {
        await mkdir(dirname(join(folder, path)), { recursive: true })
        await writeFile(join(folder, path), contents)
      }
      const outfile = join(folder, 'out.js')
      const args = [join(folder, 'functions/hello/index.ts'), '--bundle', '--format=esm', `--outfile=${outfile}`]
      await promisify(execFile)('esbuild', args)
      return (await fetch(origin, { method: 'POST', body: await readFile(outfile) })).text()
    },
    async stop(): Promise<void> {
      await miniflare.dispose()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

const HOST = `
  export default {
    async fetch(request, { LOADER }) {
      const program = "let handler; globalThis.Deno = { serve(given) { handler = given } }\\n" + await request.text()
      const code = {
        compatibilityDate: '2026-11-01',
        compatibilityFlags: ['nodejs_compat'],
        mainModule: 'program.js',
        modules: { 'program.js': { js: program + "\\nexport default { fetch: (request) => handler(request) }" } },
      }
      return LOADER.load(code).getEntrypoint().fetch(request.url)
    },
  }`
