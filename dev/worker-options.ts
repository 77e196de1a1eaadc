import { writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'

/**
 * Converts configuration files of wrangler to options for Miniflare: `<configuration> <file> …`. It is a process of its own, because
 * wrangler takes most of a second and 80 MiB to load.
 */
const wrangler: typeof import('wrangler') = createRequire(import.meta.url)('wrangler')
const paths = process.argv.slice(2)
for (let at = 0; at < paths.length; at += 2) {
  const [config = '', file = ''] = paths.slice(at)
  const { workerOptions } = wrangler.unstable_getMiniflareWorkerOptions(config)
  // The options may contain secrets from `.dev.vars`.
  await writeFile(file, JSON.stringify(workerOptions), { mode: 0o600 })
}
