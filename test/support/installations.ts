import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Puts the data of an installation that is stopped into a folder, so that what is started there need not make a cluster, its tables
 * and the bundle first.
 */
export function copyInstallation(begun: string, folder: string): void {
  mkdirSync(folder, { recursive: true })
  // Postgres takes its files only from the user who owns them, and Node copies no owners.
  execFileSync('cp', ['-a', join(begun, '.'), folder])
}
