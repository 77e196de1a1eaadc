import { Problem } from './build-problem.ts'
import { bundle } from './bundle.ts'
import { openGlobs } from './glob.ts'
import { LIMITS } from './limits.ts'
import type { Image } from './program-image.ts'
import { openSize, type Size } from './program-size.ts'
import type { FunctionBuild } from './protocol.ts'
import type { Bindings } from './settings.ts'
import type { Source } from './source.ts'

export async function buildFunction(
  bindings: Bindings,
  { entrypoint, importMap, staticPatterns = [] }: FunctionBuild,
  source: Source,
): Promise<Image> {
  const size = openSize()
  const files = staticFiles(source, staticPatterns, size)
  return { ...(await bundle(bindings, { source, entrypoint, importMap, isDeferred: true }, size)), files }
}

/** The files that the program may read, by the patterns that name them. */
function staticFiles(source: Source, patterns: readonly string[], size: Size): Image['files'] {
  if (patterns.length === 0) return {}
  if (patterns.length > LIMITS.staticPatterns) {
    throw new Problem(`There are more than ${LIMITS.staticPatterns} static patterns`)
  }
  const matches = openGlobs(patterns.map(plainPattern))
  const found = [...source].filter(([path]) => matches(path))
  for (const [, bytes] of found) size.base64(bytes.byteLength)
  return Object.fromEntries(found.map(([path, bytes]) => [path, Buffer.from(bytes).toString('base64')]))
}

function plainPattern(pattern: string): string {
  const plain = pattern.replace(/^(\.\/)+/, '')
  if (plain === '' || plain.length > LIMITS.patternLength || plain.startsWith('/') || plain.split('/').includes('..')) {
    throw new Problem(`The static pattern ${JSON.stringify(pattern)} is not relative to the source, or too long`)
  }
  return plain
}
