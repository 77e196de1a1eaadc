import { writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'

/**
 * Writes what wrangler makes of configuration files to others: `<configuration> <file> …`. A process of its own, because wrangler takes
 * most of a second and 80 MiB to load.
 */
const wrangler: typeof import('wrangler') = createRequire(import.meta.url)('wrangler')
const paths = process.argv.slice(2)
for (let at = 0; at < paths.length; at += 2) {
  const [config = '', file = ''] = paths.slice(at)
  const { workerOptions } = wrangler.unstable_getMiniflareWorkerOptions(config)
  // It may hold what `.dev.vars` sets.
  await writeFile(file, JSON.stringify(workerOptions), { mode: 0o600 })
}
