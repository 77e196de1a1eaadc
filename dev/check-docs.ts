import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { globSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { CHECKED_FILES, type Page, parsePage, SHOWN_ONLY } from './doc-blocks.ts'
import { freePort } from './ports.ts'

const READY = 'Pilothouse is ready.'
const PAGE_MS_MAX = 10 * 60_000

/** Starts an installation with a data folder of its own. */
async function start(folder: string): Promise<{ env: NodeJS.ProcessEnv; stop(): Promise<void> }> {
  const ports = await Promise.all(
    ['PORT', 'POSTGRES_PORT', 'PROXY_PORT', 'S3_PORT'].map(async (name) => [name, String(await freePort(0, 'api'))]),
  )
  const env = { ...process.env, PILOTHOUSE_DATA: folder }
  const server = spawn('node', ['dev/start.ts'], {
    env: { ...env, ...Object.fromEntries(ports), WEBHOOK_LOOPBACK: 'on', LOG_FORMAT: 'text' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(server, 'exit')
  await waitUntilReady(server.stdout)
  return {
    env,
    async stop() {
      server.kill('SIGINT')
      await exited
    },
  }
}

async function waitUntilReady(output: Readable): Promise<void> {
  for await (const line of createInterface({ input: output })) if (line === READY) return void output.resume()
  throw new Error('`npm start` ended before it was ready')
}

/** Runs all blocks of a page in one shell and returns whether each of them succeeded. */
async function runBlocks({ path, blocks }: Page, env: NodeJS.ProcessEnv): Promise<boolean> {
  const script = blocks.map(
    (block, index) => `printf '\\n--- %s\\n' '${path}, block ${index + 1} of ${blocks.length}'\n${block}`,
  )
  const shell = spawn('bash', ['-c', `set -euo pipefail\n${script.join('\n')}`], {
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
    timeout: PAGE_MS_MAX,
    detached: true,
  })
  const [code] = await once(shell, 'exit')
  endGroup(shell.pid)
  return code === 0
}

/** Ends programs that a failed page has started. */
function endGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL')
  } catch {
    // The group is empty.
  }
}

const paths = process.argv.length > 2 ? process.argv.slice(2) : globSync(CHECKED_FILES)
const pages = await Promise.all(paths.sort().map(async (path) => parsePage(path, await readFile(path, 'utf8'))))
const folder = await mkdtemp(join(tmpdir(), 'pilothouse-docs-'))
const results: string[] = []
try {
  const { env, stop } = await start(folder)
  try {
    for (const page of pages.filter(({ blocks }) => blocks.length > 0)) {
      const isGreen = await runBlocks(page, env)
      results.push(`${page.path}: ${isGreen ? `all blocks work (${page.blocks.length})` : 'FAILED'}`)
      if (!isGreen) process.exitCode = 1
    }
  } finally {
    await stop()
  }
} finally {
  await rm(folder, { recursive: true, force: true })
}
console.log(`\n${results.join('\n')}`)
console.log(`${pages.reduce((count, page) => count + page.shownOnly, 0)} blocks are marked \`${SHOWN_ONLY}\``)
