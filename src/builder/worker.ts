import { ArchiveRefused, type Files, unpack } from './archive.ts'
import { findEntrypoint } from './entrypoint.ts'
import { buildFunction } from './function.ts'
import type { BuildResult } from './protocol.ts'

/** Builds a worker of its build context, a .tar.gz. */
export async function buildWorker(body: ReadableStream<Uint8Array> | null): Promise<BuildResult> {
  const unpacked = await filesOf(body)
  if (!(unpacked instanceof Map)) return unpacked
  const { entrypoint, files } = rootOf(unpacked)
  if ('issue' in entrypoint) return { issues: [entrypoint.issue] }
  return buildFunction({ entrypoint: entrypoint.path }, files)
}

async function filesOf(body: ReadableStream<Uint8Array> | null): Promise<Files | BuildResult> {
  try {
    return body ? await unpack(body) : new Map()
  } catch (error) {
    if (!(error instanceof ArchiveRefused)) throw error
    return { issues: [{ message: `The archive ${error.message}` }] }
  }
}

/** Archives are often made of a folder from outside of it, and then hold it alone. */
function rootOf(files: Files) {
  const entrypoint = findEntrypoint(files)
  const [folder = ''] = /^[^/]+\//.exec(files.keys().next().value ?? '') ?? []
  const alone = folder !== '' && Array.from(files.keys()).every((path) => path.startsWith(folder))
  if ('path' in entrypoint || !alone) return { entrypoint, files }
  const inside: Files = new Map(Array.from(files, ([path, bytes]) => [path.slice(folder.length), bytes]))
  return { entrypoint: findEntrypoint(inside), files: inside }
}
