import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'

/**
 * Copies the data of a stopped installation into a folder, so that a start there need not make a cluster, its tables
 * and the bundle.
 */
export function copyInstallation(source: string, folder: string): void {
  mkdirSync(folder, { recursive: true })
  // Node copies no owners, and Postgres needs them. `join` would drop the `/.` that copies the content and not the folder.
  execFileSync('cp', ['-a', `${source}/.`, folder])
}
