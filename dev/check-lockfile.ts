import { readFile } from 'node:fs/promises'

interface Package {
  integrity?: string
  link?: boolean
  optional?: boolean
  os?: string[]
}

/**
 * Fails on packages that npm could not verify. Programs for other systems are the exception: a registry that lacks them gave no checksum, and
 * npm adds it on a machine that installs them.
 */
const { packages } = JSON.parse(await readFile('package-lock.json', 'utf8')) as { packages: Record<string, Package> }
const unverified = Object.entries(packages).filter(
  ([path, { integrity, link, optional, os }]) => path !== '' && !integrity && !link && !(optional && os),
)
for (const [path] of unverified) console.error(`${path} has no integrity in package-lock.json`)
if (unverified.length > 0) process.exitCode = 1
