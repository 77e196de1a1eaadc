/** The archive has no such object. */
export class MissingObject extends Error {
  override name = 'MissingObject'
  constructor(key: string) {
    super(`The archive has no object ${key}`)
  }
}

/** The object is not what was archived under this name with this key: cut off, changed, or of another name or key. */
export class DamagedObject extends Error {
  override name = 'DamagedObject'
}
