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

/** Returns the files that the program may read at run time: those that match the static patterns. */
function staticFiles(source: Source, patterns: readonly string[], size: Size): Image['files'] {
  if (patterns.length === 0) return {}
  if (patterns.length > LIMITS.staticPatterns) {
    throw new Problem(`Too many static patterns: must be at most ${LIMITS.staticPatterns}`)
  }
  const matches = openGlobs(patterns.map(normalizePattern))
  const found = [...source].filter(([path]) => matches(path))
  for (const [, bytes] of found) size.base64(bytes.byteLength)
  return Object.fromEntries(found.map(([path, bytes]) => [path, Buffer.from(bytes).toString('base64')]))
}

function normalizePattern(pattern: string): string {
  const plain = pattern.replace(/^(\.\/)+/, '')
  if (plain === '' || plain.length > LIMITS.patternLength || plain.startsWith('/') || plain.split('/').includes('..')) {
    throw new Problem(
      `Invalid static pattern ${JSON.stringify(pattern)}: must be relative to the source and at most ${LIMITS.patternLength} characters`,
    )
  }
  return plain
}
