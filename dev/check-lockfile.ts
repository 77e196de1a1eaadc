import { readFile } from 'node:fs/promises'

interface Package {
  integrity?: string
  link?: boolean
}

/** Fails on packages without a checksum, which npm could not verify. */
const { packages } = JSON.parse(await readFile('package-lock.json', 'utf8')) as { packages: Record<string, Package> }
const unverified = Object.entries(packages).filter(([path, { integrity, link }]) => path !== '' && !integrity && !link)
for (const [path] of unverified) console.error(`${path} has no integrity in package-lock.json`)
if (unverified.length > 0) process.exitCode = 1
