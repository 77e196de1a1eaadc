import { nearestFile, textOf } from '../source.ts'
import { PackageJson } from './package-json.ts'
import type { Package } from './tarball.ts'

/** Returns `type` of the nearest package.json above a file: folders of a package may have their own. */
export function typeOf({ files, json }: Package, path: string): string | undefined {
  const nearest = nearestFile(files, path, 'package.json')
  if (nearest === undefined || nearest === 'package.json') return json.type
  try {
    return PackageJson.parse(JSON.parse(textOf(files.get(nearest)))).type
  } catch {
    return undefined
  }
}
