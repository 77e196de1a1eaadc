import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'

/**
 * Puts the data of an installation that is stopped into a folder, so that what is started there need not make a cluster, its tables
 * and the bundle first.
 */
export function copyInstallation(begun: string, folder: string): void {
  mkdirSync(folder, { recursive: true })
  // Node copies no owners, and Postgres needs them. `join` would drop the `/.` that copies the content and not the folder.
  execFileSync('cp', ['-a', `${begun}/.`, folder])
}
