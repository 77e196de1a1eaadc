import type { Image } from '../runtime/image.ts'
import { unpack } from './archive.ts'
import { bundle } from './bundle.ts'
import { entrypointOf, NoEntrypoint } from './entrypoint.ts'
import { Problem } from './problem.ts'
import type { Bindings } from './settings.ts'
import { openSize } from './size.ts'
import type { Source } from './source.ts'
import { varsOf } from './wrangler.ts'

/** Builds a worker of its build context, a .tar.gz. */
export async function buildWorker(bindings: Bindings, body: ReadableStream<Uint8Array> | null): Promise<Image> {
  if (!body) throw new Problem('The archive is empty')
  const program = rooted(await unpack(body))
  const vars = varsOf(program.source)
  const image = await bundle(bindings, { ...program, hasTsConfigs: true, isDeferred: true }, openSize())
  return { ...image, files: {}, vars }
}

/** Archives are often made of a folder from outside of it, and then hold it alone. */
function rooted(source: Source): { source: Source; entrypoint: string } {
  try {
    return { source, entrypoint: entrypointOf(source) }
  } catch (error) {
    const inside = onlyFolder(source)
    if (!(error instanceof NoEntrypoint) || !inside) throw error
    return { source: inside, entrypoint: entrypointOf(inside) }
  }
}

function onlyFolder(source: Source): Source | undefined {
  const paths = Array.from(source.keys())
  const [folder] = /^[^/]+\//.exec(paths[0] ?? '') ?? []
  if (folder === undefined || !paths.every((path) => path.startsWith(folder))) return undefined
  return new Map(Array.from(source, ([path, bytes]) => [path.slice(folder.length), bytes]))
}
