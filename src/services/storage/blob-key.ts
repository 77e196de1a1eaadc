import { UUID } from '../../platform/identifiers.ts'
export const projectPrefix = (ref: string): string => `projects/${ref}/`
export const blobPrefix = (ref: string): string => `${projectPrefix(ref)}storage/`

/** The key of the bytes of a version that this server created. */
export const blobKey = (ref: string, version: string): string => blobPrefix(ref) + version

export const isVersion = (text: string): boolean => UUID.test(text)

/** The key for a version read from a row. The project's owner can write any text there; undefined if it is no version. */
export const storedBlobKey = (ref: string, version: string | null): string | undefined =>
  version !== null && isVersion(version) ? blobKey(ref, version) : undefined
