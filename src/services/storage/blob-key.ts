export const projectPrefix = (ref: string): string => `projects/${ref}/`
export const blobPrefix = (ref: string): string => `${projectPrefix(ref)}storage/`

/** Where the bytes of a version are that this server has made. */
export const blobKey = (ref: string, version: string): string => blobPrefix(ref) + version

const VERSION = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

export const isVersion = (text: string): boolean => VERSION.test(text)

/** For a version that a row names: the project's owner can write anything there, and what is no version has no bytes. */
export const storedBlobKey = (ref: string, version: string | null): string | undefined =>
  version !== null && isVersion(version) ? blobKey(ref, version) : undefined
