import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { open, readdir, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { KeyedMutex } from '../instances/mutex.ts'
import type { Instance } from '../instances/types.ts'
import { type LogLine, parseLines } from './lines.ts'

/** Limit for the file that the server writes, and for the older one beside it. */
export const FILE_BYTES_MAX = 7 * 1024 * 1024
const READ_BYTES_MAX = 512 * 1024
export const LINES_MAX = 1_000

/**
 * Positions count all bytes that were ever logged. Older messages are in `postgres.log.<position of its end>`, which is also the
 * position where the server's own file begins.
 */
interface LogFiles {
  /** Changes when the log starts over. */
  id: string
  older: { path: string; start: number } | undefined
  /** Position of the start of the server's own file. */
  start: number
  end: number
}

export interface LogPage {
  /** Position of the next page; stays valid when the log is rotated. */
  cursor: string
  lines: LogLine[]
  /** Bytes of messages between the requested cursor and the first line that rotation has removed. */
  skipped_bytes: number
}

type Logged = Pick<Instance, 'record' | 'paths'>

/** Serializes reading and rotating a log. */
const mutex = new KeyedMutex()

/** Reads complete messages after a cursor; without a valid cursor, the oldest that are kept. */
export function readLog(instance: Logged, since: string | undefined, linesMax = LINES_MAX): Promise<LogPage> {
  return mutex.run(instance.paths.log, async () => {
    const { id, older, start, end } = await findFiles(instance)
    const [, ofLog, at] = /^(\w+)-(\d{1,15})$/.exec(since ?? '') ?? []
    const oldest = older?.start ?? start
    const requested = ofLog === id && Number(at) <= end ? Number(at) : oldest
    const from = Math.max(requested, oldest)
    const file = older && from < start ? { ...older, end: start } : { path: instance.paths.log, start, end }
    const bytes = await readBytes(file.path, from - file.start, Math.min(file.end - from, READ_BYTES_MAX))
    const { lines, length } = parseLines(bytes, { linesMax, isEnd: from + bytes.length >= file.end })
    return { cursor: `${id}-${from + length}`, lines, skipped_bytes: from - requested }
  })
}

/** The cursor after the last message. */
export const logEnd = (instance: Logged): Promise<string> =>
  mutex.run(instance.paths.log, () => findFiles(instance).then(({ id, end }) => `${id}-${end}`))

/** Rotates the log of an instance, so that it takes at most twice FILE_BYTES_MAX. */
export async function rotateLog(instance: Logged): Promise<void> {
  const { log } = instance.paths
  const isLarge = async () => ((await stat(log).catch(() => undefined))?.size ?? 0) > FILE_BYTES_MAX
  if (!(await isLarge())) return
  await mutex.run(instance.paths.log, async () => {
    // Another call may have rotated it meanwhile.
    if (await isLarge()) moveLog(log, await findFiles(instance))
  })
}

/**
 * Copies the server's file and truncates it, because the server keeps it open and appends. Copying is synchronous up to the
 * truncation, so only what is logged in the microseconds between is lost.
 */
function moveLog(path: string, { start, older }: LogFiles): void {
  const draft = `${path}.new`
  // The account owns the folder: links there could lead to any file.
  const from = openSync(path, constants.O_RDWR | constants.O_NOFOLLOW)
  let at = Math.max(0, fstatSync(from).size - FILE_BYTES_MAX)
  try {
    rmSync(draft, { force: true })
    const to = openSync(draft, 'wx', 0o600)
    try {
      at = copyAll(from, to, at)
    } catch {
      // On a full disk, free space matters more than the messages.
      ftruncateSync(to, 0)
      at = fstatSync(from).size
    } finally {
      closeSync(to)
    }
    renameSync(draft, `${path}.${start + at}`)
    ftruncateSync(from, 0)
    if (older) rmSync(older.path, { force: true })
  } finally {
    closeSync(from)
  }
}

/** Copies everything from a position on, and returns the position of the end. */
function copyAll(from: number, to: number, start: number): number {
  const buffer = Buffer.allocUnsafe(READ_BYTES_MAX)
  let at = start
  for (let read = -1; read !== 0; at += read) {
    read = readSync(from, buffer, 0, buffer.length, at)
    writeSync(to, buffer, 0, read)
  }
  return at
}

async function findFiles({ paths: { log }, record }: Logged): Promise<LogFiles> {
  const prefix = `${basename(log)}.`
  const names = await readdir(dirname(log)).catch(() => [])
  const ends = names.flatMap((name) => (name.startsWith(prefix) ? [Number(name.slice(prefix.length))] : []))
  const start = Math.max(0, ...ends.filter(Number.isSafeInteger))
  const path = join(dirname(log), `${prefix}${start}`)
  const [own, before] = await Promise.all([log, path].map((file) => stat(file).catch(() => undefined)))
  const id = `${new Date(record.createdAt).getTime().toString(36)}${(own?.ino ?? 0).toString(36)}`
  const older = before && { path, start: start - before.size }
  return { id, older, start, end: start + (own?.size ?? 0) }
}

async function readBytes(path: string, position: number, length: number): Promise<Buffer> {
  if (length <= 0) return Buffer.alloc(0)
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(length), 0, length, position)
    return buffer.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}
