import type { Bindings } from '../../platform/bindings.ts'
import { locate, type ProjectAddress } from '../gateway/project-address.ts'
import { StorageError } from './storage-error.ts'

const BASE = '/storage/v1'

/** The project and the path below `/storage/v1`; undefined if the request is not for the storage API. */
export function storageAddressOf(request: Request, bindings: Bindings): ProjectAddress | undefined {
  const { project } = locate(request, bindings)
  if (!project?.path.startsWith(`${BASE}/`)) return undefined
  return { ...project, path: project.path.slice(BASE.length) }
}

/** Segments that URL parsers resolve as `.` or `..`: the request would reach another object than the client meant. */
const DOT_SEGMENT = /[/\\](\.|%2e){1,2}([/\\]|$)/i

export function refuseDotSegments({ url }: Request): void {
  const [path = ''] = url.split(/[?#]/)
  if (DOT_SEGMENT.test(path)) throw new StorageError('InvalidKey', 'Invalid key: no segment may be `.` or `..`')
}
