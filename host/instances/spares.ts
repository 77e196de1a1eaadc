import { randomBytes } from 'node:crypto'
import { basename, join } from 'node:path'
import { copyFolder, removeFolder } from './files.ts'
import { type HostFolders, instancesIn } from './record.ts'

/** Keeps a copy of each template for the next instance, because a copy takes a third of the time of a creation. */
export class Spares {
  readonly #folders: HostFolders
  readonly #isSynced: boolean
  readonly #copies = new Map<string, Promise<string | undefined>>()

  constructor(folders: HostFolders, { isSynced }: { isSynced: boolean }) {
    this.#folders = folders
    this.#isSynced = isSynced
  }

  /** The copy of a template, which the caller must move away; undefined if there is none. */
  async take(template: string): Promise<string | undefined> {
    const copy = this.#copies.get(template)
    this.#copies.delete(template)
    return copy
  }

  /** Starts to copy a template if there is no copy. After a failure, the next instance is copied when it is created. */
  prepare(template: string): void {
    if (this.#copies.has(template)) return
    // If the daemon is killed, its next start removes the folder, as it is not that of an instance.
    const copy = join(instancesIn(this.#folders), `${basename(template)}.spare-${randomBytes(4).toString('hex')}`)
    const copied = copyFolder(template, copy, { account: undefined, isSynced: this.#isSynced }).then(
      () => copy,
      async () => {
        await removeFolder(copy).catch(() => {})
        return undefined
      },
    )
    this.#copies.set(template, copied)
  }

  async close(): Promise<void> {
    const copies = await Promise.all(this.#copies.values())
    this.#copies.clear()
    for (const copy of copies) if (copy !== undefined) await removeFolder(copy)
  }
}
