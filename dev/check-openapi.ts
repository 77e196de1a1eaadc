import { readFileSync } from 'node:fs'
import packageJson from '../package.json' with { type: 'json' }
import { routes } from '../src/api.ts'
import { openapi } from '../src/management/kernel/openapi.ts'

/** Fails if the route table differs from the reviewed snapshots of the published documents. */
for (const version of ['v1', 'v2'] as const) {
  const file = `test/management/openapi/${version}.json`
  const reviewed = readFileSync(file, 'utf8')
  const [{ url: baseUrl }] = JSON.parse(reviewed).servers
  const published = `${JSON.stringify(openapi(routes, version, { release: packageJson.version, baseUrl }), null, 2)}\n`
  if (published === reviewed) continue
  console.error(
    `${file} differs from the routes: run test/management/openapi.test.ts with -u, and review the difference.`,
  )
  process.exitCode = 1
}
