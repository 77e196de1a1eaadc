import { readFileSync } from 'node:fs'
import packageJson from '../package.json' with { type: 'json' }
import { documents } from '../src/api.ts'

/** Fails if the route tables differ from the reviewed snapshots of the published documents. */
for (const [name, build] of Object.entries(documents)) {
  const file = `test/management/openapi/${name}.json`
  const reviewed = readFileSync(file, 'utf8')
  const [{ url }] = JSON.parse(reviewed).servers
  const { origin: baseUrl } = new URL(url)
  const published = `${JSON.stringify(build({ release: packageJson.version, baseUrl }), null, 2)}\n`
  if (published === reviewed) continue
  console.error(
    `${file} differs from the routes: run test/management/openapi.test.ts with -u, and review the difference.`,
  )
  process.exitCode = 1
}
