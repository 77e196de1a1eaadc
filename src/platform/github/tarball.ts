import { createTarDecoder, type ParsedTarEntry } from 'modern-tar'
import { counted } from '../archive/byte-counter.ts'
import { bytesOf } from '../archive/tar-entry.ts'
import { timeout } from '../timeout.ts'
import { failureOf, type Github, GithubRefused, GithubUnavailable, headersOf, toFailure } from './client.ts'
import type { Repository } from './repository.ts'

const MiB = 1024 ** 2

/** Of a whole repository, of which a few files are kept. */
const LIMITS = {
  packedBytes: 128 * MiB,
  unpackedBytes: 1024 * MiB,
  entries: 100_000,
  fileBytes: 8 * MiB,
  keptBytes: 16 * MiB,
}
const TIMEOUT_MS = 120_000
const REDIRECTS_MAX = 3

/** The commit holds what cannot be taken, in words for its author. */
export class UnusableCommit extends Error {
  override name = 'UnusableCommit'
}

/** What a path of the repository is to us: to be kept, passed over, or one below which something is to be kept. */
export type Interest = 'kept' | 'above' | 'none'

/**
 * The files of a commit that are of interest, by their paths. One pass over the whole archive, of which no more than these are
 * in memory. Rejects with UnusableCommit, GithubRefused or GithubUnavailable.
 */
export async function readCommit(
  repository: Repository,
  commit: string,
  interestIn: (path: string) => Interest,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const what = `GET /repos/${repository.name}/tarball`
  const { signal, clear } = timeout(TIMEOUT_MS)
  const bounds = createBounds()
  try {
    const body = await open(repository, commit, { signal, what })
    return await unpack(body, bounds, interestIn)
  } catch (error) {
    // A native stream in between tells that it failed, and not why.
    const broken = bounds.broken() ?? error
    throw broken instanceof UnusableCommit ? broken : toFailure(error, what)
  } finally {
    clear()
  }
}

/** GitHub answers with where the archive is, which takes no token of ours. */
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
    url = whereTo(github, location, url)
    headers = { 'user-agent': 'Pilothouse/1.0' }
  }
  throw new GithubUnavailable(`GitHub redirects ${what} more than ${REDIRECTS_MAX} times`)
}

function whereTo({ app }: Github, location: string, from: string): string {
  const url = new URL(location, from)
  if (url.protocol === 'https:' || url.protocol === new URL(app.apiUrl).protocol) return url.href
  throw new GithubRefused(`GitHub redirects to ${url.protocol}`, 302)
}

function createBounds() {
  const passed = { packed: 0, unpacked: 0, entries: 0, kept: 0 }
  let broken: UnusableCommit | undefined
  const require = (holds: boolean, what: string) => {
    if (holds) return
    broken = new UnusableCommit(what)
    throw broken
  }
  return {
    broken: () => broken,
    packed(size: number) {
      passed.packed += size
      require(passed.packed <= LIMITS.packedBytes, `the repository has more than ${LIMITS.packedBytes / MiB} MiB`)
    },
    unpacked(size: number) {
      passed.unpacked += size
      require(passed.unpacked <=
        LIMITS.unpackedBytes, `the repository unpacks to more than ${LIMITS.unpackedBytes / MiB} MiB`)
    },
    entry() {
      passed.entries += 1
      require(passed.entries <= LIMITS.entries, `the repository has more than ${LIMITS.entries} files`)
    },
    kept(path: string, size: number) {
      passed.kept += size
      require(size <= LIMITS.fileBytes, `${path} is larger than ${LIMITS.fileBytes / MiB} MiB`)
      require(passed.kept <=
        LIMITS.keptBytes, `migrations and seed are larger than ${LIMITS.keptBytes / MiB} MiB together`)
    },
    require,
  }
}
type Bounds = ReturnType<typeof createBounds>

/** In the chunks in which it comes, as they are unpacked already. */
const counting = (count: (size: number) => void) =>
  new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      count(chunk.byteLength)
      controller.enqueue(chunk)
    },
  })

async function unpack(
  body: ReadableStream<Uint8Array>,
  bounds: Bounds,
  interestIn: (path: string) => Interest,
): Promise<Map<string, Uint8Array<ArrayBuffer>>> {
  const files = new Map<string, Uint8Array<ArrayBuffer>>()
  const entries = body
    .pipeThrough(counted(bounds.packed))
    .pipeThrough(new DecompressionStream('gzip') as ReadableWritablePair<Uint8Array, Uint8Array>)
    .pipeThrough(counting(bounds.unpacked))
    .pipeThrough(createTarDecoder({ strict: true }))
  for await (const entry of entries) {
    bounds.entry()
    const path = pathOf(entry)
    const interest = path === undefined ? 'none' : interestIn(path)
    const { type = 'file', size } = entry.header
    if (path === undefined || interest === 'none' || type === 'directory') {
      await entry.body.cancel()
      continue
    }
    bounds.require(type === 'file', `${path} is no file: links are not followed`)
    // A file where a folder should be.
    if (interest === 'above') {
      await entry.body.cancel()
      continue
    }
    bounds.require(!files.has(path), `the repository has two files ${path}`)
    bounds.kept(path, size)
    files.set(path, await bytesOf(entry))
  }
  return files
}

/** Within the repository: GitHub puts all below one folder. */
function pathOf({ header: { name } }: ParsedTarEntry): string | undefined {
  const path = name.split('/').slice(1).join('/').replace(/\/+$/, '')
  return path === '' ? undefined : path
}
