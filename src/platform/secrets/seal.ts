import { base64Url } from './base64url.ts'

/**
 * Secrets at rest: AES-256-GCM under ENCRYPTION_KEY. A sealed text is `<key id>.<base64url of iv and ciphertext>`;
 * its table, row and column are associated data, so it cannot be moved to another row.
 *
 * ENCRYPTION_KEY is `<id>:<base64 of 32 bytes>`, or several of these separated by commas: the first seals, all open.
 */
const IV_BYTES = 12

interface Keyring {
  current: string
  keys: Map<string, Promise<CryptoKey>>
}
const keyrings = new Map<string, Keyring>()

function keyring(setting: string): Keyring {
  const known = keyrings.get(setting)
  if (known) return known
  const entries = setting.split(',').map((entry) => /^(\w+):([A-Za-z0-9+/]{43}=)$/.exec(entry.trim()))
  const keys = new Map<string, Promise<CryptoKey>>()
  for (const entry of entries) {
    const [, id, key] = entry ?? []
    if (!id || !key)
      throw new Error(
        'Invalid ENCRYPTION_KEY: must be <id>:<base64 of 32 bytes>, or several of these separated by commas',
      )
    if (keys.has(id)) throw new Error(`Invalid ENCRYPTION_KEY: two keys have the id ${id}`)
    keys.set(id, crypto.subtle.importKey('raw', fromBase64(key), 'AES-GCM', false, ['encrypt', 'decrypt']))
  }
  const ring = { current: [...keys.keys()][0] as string, keys }
  keyrings.set(setting, ring)
  return ring
}

/** Id of the key that seals new values. */
export const currentKeyId = (setting: string): string => keyring(setting).current

/** Ids of all keys. */
export const keyIdsOf = (setting: string): string[] => [...keyring(setting).keys.keys()]

/** Id of the key that sealed a value. */
export const keyIdOf = (sealed: string): string => /^\w+(?=\.)/.exec(sealed)?.[0] ?? 'none'

/** Seals a text with the first key of ENCRYPTION_KEY. Only the same associated data opens it. */
export async function seal(setting: string, text: string, associatedData: string): Promise<string> {
  const { current, keys } = keyring(setting)
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES))
  const key = (await keys.get(current)) as CryptoKey
  const sealed = new Uint8Array(
    await crypto.subtle.encrypt(gcm(iv, associatedData), key, new TextEncoder().encode(text)),
  )
  return `${current}.${base64Url(new Uint8Array([...iv, ...sealed]).buffer)}`
}

/** Opens a sealed text. Rejects if its key is no longer in ENCRYPTION_KEY, or if the text or its associated data differ. */
export async function unseal(setting: string, sealed: string, associatedData: string): Promise<string> {
  const [id = '', data = ''] = sealed.split('.')
  const key = await keyring(setting).keys.get(id)
  if (!key) throw new Error(`ENCRYPTION_KEY no longer holds the key ${id}`)
  const bytes = fromBase64(data.replaceAll('-', '+').replaceAll('_', '/'))
  const iv = bytes.slice(0, IV_BYTES)
  return new TextDecoder().decode(await crypto.subtle.decrypt(gcm(iv, associatedData), key, bytes.slice(IV_BYTES)))
}

const gcm = (iv: Uint8Array, associatedData: string) => ({
  name: 'AES-GCM',
  iv,
  additionalData: new TextEncoder().encode(associatedData),
})

const fromBase64 = (text: string) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0))
