import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from './ports.ts'

/** Pages whose shell blocks run, each against a start of its own. */
const PAGES = ['docs/getting-started.md']
const READY = 'Pilothouse is ready.'
const TIME_MS_MAX = 10 * 60_000

/** The blocks that begin with ```sh; others show what is not run. */
const blocksOf = (page: string): string[] => [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block = '']) => block)

/** Runs all blocks of a page in one shell, as fast as they go, and returns whether each of them succeeded. */
async function check(page: string): Promise<boolean> {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-docs-'))
  const ports = await Promise.all(
    ['PORT', 'POSTGRES_PORT', 'PROXY_PORT', 'S3_PORT'].map(async (name) => [name, String(await freePort(0, 'api'))]),
  )
  const env = { ...process.env, PILOTHOUSE_DATA: folder }
  const server = spawn('node', ['dev/start.ts'], {
    env: { ...env, ...Object.fromEntries(ports), WEBHOOK_LOOPBACK: 'on' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(server, 'exit')
  try {
    await untilReady(server.stdout)
    const blocks = blocksOf(await readFile(page, 'utf8'))
    const script = blocks.map((block, index) => `echo '--- ${page}, block ${index + 1} of ${blocks.length}'\n${block}`)
    const shell = spawn('bash', ['-c', `set -euo pipefail\n${script.join('\n')}`], {
      env,
      stdio: ['ignore', 'inherit', 'inherit'],
      timeout: TIME_MS_MAX,
      detached: true,
    })
    const [code] = await once(shell, 'exit')
    endGroup(shell.pid)
    return code === 0
  } finally {
    server.kill('SIGINT')
    await exited
    await rm(folder, { recursive: true, force: true })
  }
}

/** A page that fails may leave programs that it has started. */
function endGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // Nobody is left.
  }
}

function untilReady(output: NodeJS.ReadableStream): Promise<void> {
  let text = ''
  return new Promise((resolve, reject) => {
    output.on('data', (chunk) => {
      text += chunk
      if (text.includes(READY)) resolve()
    })
    output.on('end', () => reject(new Error(`the start ended:\n${text}`)))
  })
}

for (const page of PAGES) {
  const isGreen = await check(page)
  console.log(`${page}: ${isGreen ? 'every block works' : 'FAILED'}`)
  if (!isGreen) process.exitCode = 1
}
