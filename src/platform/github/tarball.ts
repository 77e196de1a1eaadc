import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { countBytes } from '../archive/byte-counter.ts'
import { readTarEntry } from '../archive/tar-entry.ts'
import { timeout } from '../timeout.ts'
import { failureOf, type Github, GithubRefused, GithubUnavailable, headersOf, toFailure } from './client.ts'
import type { Repository } from './repository.ts'

const MiB = 1024 ** 2

/** Limits of a whole repository, and of the files in it that are kept (`fileBytes` for each, `keptBytes` for all). */
const LIMITS = {
  packedBytes: 128 * MiB,
  unpackedBytes: 1024 * MiB,
  entries: 100_000,
  fileBytes: 8 * MiB,
  keptBytes: 16 * MiB,
}
const TIMEOUT_MS = 120_000
const REDIRECTS_MAX = 3

/** The commit cannot be used. The message is for its author. */
export class UnusableCommit extends Error {
  override name = 'UnusableCommit'
}

/** Whether a path is kept, is a folder above paths that are kept, or is ignored. */
export type Interest = 'kept' | 'above' | 'none'

/**
 * Reads the files of a commit that `interestIn` keeps, by their paths. Streams the whole archive and holds only these files in
 * memory. Rejects with UnusableCommit, GithubRefused or GithubUnavailable.
 */
export async function readCommit(
  repository: Repository,
  commit: string,
  interestIn: (path: string) => Interest,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const what = `GET /repos/${repository.name}/tarball`
  const { signal, clear } = timeout(TIMEOUT_MS)
  const limits = createLimitChecks()
  try {
    const body = await open(repository, commit, { signal, what })
    return await unpack(body, limits, interestIn)
  } catch (error) {
    // A native stream in the pipeline reports that it failed, but not why.
    const failure = limits.exceeded() ?? error
    throw failure instanceof UnusableCommit ? failure : toFailure(error, what)
  } finally {
    clear()
  }
}

/** Follows GitHub's redirect to the archive. The token is not sent to the new location. */
async function open(
  { github, name, token }: Repository,
  commit: string,
  { signal, what }: { signal: AbortSignal; what: string },
): Promise<ReadableStream<Uint8Array>> {
  let url = `${github.app.apiUrl}/repos/${name}/tarball/${commit}`
  let headers: Record<string, string> = headersOf(token)
  for (let redirects = 0; redirects <= REDIRECTS_MAX; redirects++) {
    const response = await github.send(url, { headers, redirect: 'manual', signal })
    const location = response.status >= 300 && response.status < 400 ? response.headers.get('location') : null
    if (location === null) {
      if (response.ok && response.body) return response.body
      throw await failureOf(github, response, what)
    }
    await response.body?.cancel()
    url = redirectTarget(github, location, url)
    headers = { 'user-agent': 'Pilothouse/1.0' }
  }
  throw new GithubUnavailable(`GitHub redirects ${what} more than ${REDIRECTS_MAX} times`)
}

function redirectTarget({ app }: Github, location: string, from: string): string {
  const url = new URL(location, from)
  if (url.protocol === 'https:' || url.protocol === new URL(app.apiUrl).protocol) return url.href
  throw new GithubRefused(`GitHub redirects to ${url.protocol}`, 302)
}

function createLimitChecks() {
  const total = { packed: 0, unpacked: 0, entries: 0, kept: 0 }
  let exceeded: UnusableCommit | undefined
  const require = (holds: boolean, problem: string) => {
    if (holds) return
    exceeded = new UnusableCommit(problem)
    throw exceeded
  }
  const add = (name: keyof typeof total, by: number, max: number, problem: string) => {
    total[name] += by
    require(total[name] <= max, problem)
  }
  const { packedBytes, unpackedBytes, entries, fileBytes, keptBytes } = LIMITS
  return {
    exceeded: () => exceeded,
    packed: (size: number) =>
      add('packed', size, packedBytes, `the archive of the repository is larger than ${packedBytes / MiB} MiB`),
    unpacked: (size: number) =>
      add('unpacked', size, unpackedBytes, `the repository unpacks to more than ${unpackedBytes / MiB} MiB`),
    entry: () => add('entries', 1, entries, `the repository has more than ${entries} files`),
    kept(path: string, size: number) {
      require(size <= fileBytes, `${path} is larger than ${fileBytes / MiB} MiB`)
      add('kept', size, keptBytes, `migrations and seed are larger than ${keptBytes / MiB} MiB together`)
    },
    require,
  }
}
type LimitChecks = ReturnType<typeof createLimitChecks>

async function unpack(
  body: ReadableStream<Uint8Array>,
  limits: LimitChecks,
  interestIn: (path: string) => Interest,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  const entries = body
    .pipeThrough(countBytes(limits.packed))
    .pipeThrough(new DecompressionStream('gzip') as ReadableWritablePair<Uint8Array, Uint8Array>)
    .pipeThrough(countBytes(limits.unpacked, Number.POSITIVE_INFINITY))
    .pipeThrough(createTarDecoder({ strict: true }))
  for await (const entry of entries) {
    limits.entry()
    const path = pathOf(entry)
    const interest = path === undefined ? 'none' : interestIn(path)
    const { type = 'file', size } = entry.header
    const isIgnored = path === undefined || interest === 'none' || type === 'directory'
    limits.require(isIgnored || type === 'file', `${path} must be a regular file: links are not followed`)
    // A file at the path of a folder has nothing below it that is kept.
    if (isIgnored || interest === 'above') {
      await entry.body.cancel()
      continue
    }
    limits.require(!files.has(path), `the repository has two files at ${path}`)
    limits.kept(path, size)
    files.set(path, await readTarEntry(entry))
  }
  return files
}

/** Path in the repository: GitHub puts all files below one folder. */
function pathOf({ header: { name } }: ParsedTarEntry): string | undefined {
  const path = name.split('/').slice(1).join('/').replace(/\/+$/, '')
  return path === '' ? undefined : path
}
