import { chown, mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { historyName, nameOf, numberOf, segmentBefore, timelineOf } from '../copies/wal-segments.ts'
import { ownAll, readOwned, replaceFile } from '../instances/files.ts'
import type { InstanceRecord } from '../instances/types.ts'
import type { Archive } from './archive.ts'
import type { RestorePlan } from './plan.ts'
import type { Bundle } from './wal.ts'

/** Number of bundles on disk ahead of the segment that the server requested last, and behind it. */
const BUNDLES_AHEAD = 3
const BUNDLES_BEHIND = 2
const POLL_MS = 50
/**
 * The shell program of `restore_command`. An exit code above 125 ends the recovery; 1 to 125 mean that the archive lacks the
 * file. Paths are relative to the data folder, because the account of an instance may be unable to enter its parents.
 */
const FETCH = `from="\${0%/*}"
[ -r "$from/names" ] || exit 200
grep -qxF "$1" "$from/names" || exit 1
case $1 in *.history) ;; *) echo "$1" > "$from/requested" ;; esac
while [ ! -e "$from/$1" ]; do [ -r "$from/names" ] || exit 200; sleep 0.05; done
cp "$from/$1" "$2" || exit 200
`

export interface Feed {
  /** The value of `restore_command`. */
  command: string
  /** Path for the log of the server, which is removed with the feed. */
  log: string
  /** The error that kept a bundle from being fetched. */
  failure(): unknown
  /** Whether the server has requested the last segment. */
  isRead(): Promise<boolean>
  /** Adds those bundles that were archived after the feed had started. */
  update(archived: readonly Bundle[]): Promise<void>
  stop(): Promise<void>
}

/**
 * The folders beside a data folder from which its server gets WAL: the feed, and the bundle that is being unpacked. The account cannot
 * write into their parent, where it could exchange a file that is being unpacked.
 */
export const feedFolders = (data: string) => [`${data}.wal`, `${data}.wal.part`] as const

/** Serves WAL to a server in recovery from a folder beside its data, which contains only a few bundles at a time. */
export async function startFeed(
  archive: Archive,
  { plan, data, account }: { plan: RestorePlan; data: string; account: InstanceRecord['account'] },
): Promise<Feed> {
  const { histories, base } = plan
  const bundles = [...plan.bundles]
  const folders = feedFolders(data)
  const [folder, part] = folders
  const removeAll = async () => {
    for (const each of folders) await rm(each, { recursive: true, force: true })
  }
  await removeAll()
  await mkdir(folder, { mode: 0o700 })
  const readRequested = async () => (await readOwned(join(folder, 'requested'), account)).trim()
  const stopNumber = segmentBefore(base.stopLsn, base.segmentBytes)
  const filesOf = ({ first, last }: Bundle) => {
    const [from, to] = [numberOf(first, base.segmentBytes), numberOf(last, base.segmentBytes)]
    return Array.from({ length: to - from + 1 }, (_, i) => nameOf(timelineOf(first), from + i, base.segmentBytes))
  }
  const files = bundles.map(filesOf)
  for (const [timeline, text] of histories) await writeFile(join(folder, historyName(timeline)), text)
  const namesText = () => [...files.flat(), ...[...histories.keys()].map(historyName), ''].join('\n')
  await writeFile(join(folder, 'names'), namesText())
  await writeFile(join(folder, 'fetch'), FETCH)
  await writeFile(join(folder, 'requested'), '')
  await ownAll(folder, account)

  const present = new Set<number>()
  async function fetchBundle(index: number): Promise<void> {
    await archive.unpack(bundles[index]?.key ?? '', part)
    for (const file of files[index] ?? []) {
      if (account) await chown(join(part, file), account.uid, account.gid)
      await rename(join(part, file), join(folder, file))
    }
    // A plan may use only some segments of a bundle.
    await rm(part, { recursive: true, force: true })
    present.add(index)
  }
  async function removeBundle(index: number): Promise<void> {
    present.delete(index)
    for (const file of files[index] ?? []) await rm(join(folder, file), { force: true })
  }
  let isStopped = false
  let failure: unknown
  const serve = async () => {
    for (let at = 0; !isStopped; ) {
      const requested = await readRequested()
      const found = files.findIndex((names) => names.includes(requested))
      if (found >= 0) at = found
      const missing = files.findIndex((_, index) => index >= at && index <= at + BUNDLES_AHEAD && !present.has(index))
      for (const index of [...present])
        if (index < at - BUNDLES_BEHIND || index > at + BUNDLES_AHEAD) await removeBundle(index)
      if (missing >= 0) await fetchBundle(missing)
      else await delay(POLL_MS)
    }
  }
  const serving = serve().catch(async (error) => {
    failure = error
    // Ends the recovery. A removal also works on a full disk, or if the folder has been removed already.
    await rm(join(folder, 'names'), { force: true })
  })
  const path = `../${basename(folder)}`
  return {
    command: `[ -r "${path}/fetch" ] || exit 200; sh "${path}/fetch" "%f" "%p"`,
    log: join(folder, 'recovery.log'),
    failure: () => failure,
    async isRead() {
      const last = files.at(-1)?.at(-1)
      // The server does not request segments that the backup itself contains.
      if (last === undefined || numberOf(last, base.segmentBytes) <= stopNumber) return true
      return (await readRequested()) === last
    },
    async update(archived) {
      const known = new Set(bundles.map(({ key }) => key))
      const more = archived.filter(({ key }) => !known.has(key))
      if (more.length === 0) return
      bundles.push(...more)
      files.push(...more.map(filesOf))
      await replaceFile(join(folder, 'names'), namesText(), account)
    },
    async stop() {
      isStopped = true
      await serving
      await removeAll()
    },
  }
}
