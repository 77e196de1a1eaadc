/** The object does not exist in the archive. */
export class MissingObject extends Error {
  override name = 'MissingObject'
  constructor(key: string) {
    super(`The archive has no object ${key}`)
  }
}

/** The object is truncated or changed, or was stored under another name or key. */
export class DamagedObject extends Error {
  override name = 'DamagedObject'
}
