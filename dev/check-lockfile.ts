import { readFile } from 'node:fs/promises'

interface Package {
  version?: string
  integrity?: string
  link?: boolean
}

/** The programs of the `supabase` CLI for other systems. CONTRIBUTING.md says why they have none. */
const EXCEPTION = /^node_modules\/@supabase\/cli-(darwin|windows|linux)-(arm64|x64)(-musl)?@3\.1\.0$/

/** Fails on packages without a checksum, which npm could not verify. */
const { packages } = JSON.parse(await readFile('package-lock.json', 'utf8')) as { packages: Record<string, Package> }
const unverified = Object.entries(packages).filter(
  ([path, { version, integrity, link }]) => path !== '' && !integrity && !link && !EXCEPTION.test(`${path}@${version}`),
)
for (const [path] of unverified) console.error(`${path} has no integrity in package-lock.json`)
if (unverified.length > 0) process.exitCode = 1
