import * as z from 'zod'
import { Problem } from '../build-problem.ts'

export const Dist = z.object({ tarball: z.url(), integrity: z.string().optional(), shasum: z.string().optional() })
export type Dist = z.output<typeof Dist>

const HASHES: Record<string, string> = { sha512: 'SHA-512', sha384: 'SHA-384', sha256: 'SHA-256' }

/** Compares a tarball with the strongest digest that the registry lists. Throws Problem if they differ. */
export async function checkIntegrity(name: string, bytes: Uint8Array<ArrayBuffer>, dist: Dist): Promise<void> {
  const listed = new Map(dist.integrity?.split(/\s+/).map((entry) => entry.split('-', 2) as [string, string]))
  const algorithm = Object.keys(HASHES).find((key) => listed.has(key))
  const matches = algorithm
    ? (await digest(HASHES[algorithm] ?? '', bytes)).toString('base64') === listed.get(algorithm)?.split('?')[0]
    : (await digest('SHA-1', bytes)).toString('hex') === dist.shasum
  if (!matches)
    throw new Problem(`Integrity check failed for ${name}: ${dist.tarball} does not match the digest in the registry`)
}

const digest = async (algorithm: string, bytes: Uint8Array<ArrayBuffer>) =>
  Buffer.from(await crypto.subtle.digest(algorithm, bytes))
