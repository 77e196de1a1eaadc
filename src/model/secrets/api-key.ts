import { base64Url } from '../../platform/secrets/base64url.ts'
import { seal, unseal } from '../../platform/secrets/seal.ts'
import type { API_KEY_TYPES } from '../tables/index.ts'
import { apiKeyAssociatedData } from './associated-data.ts'

const RANDOM_BYTES = 17
const RANDOM_LENGTH = 22
const CHECKSUM_LENGTH = 8
/** Number of random characters in the visible prefix, as in recorded replies of the hosted service. */
const PREFIX_LENGTH = 5

/** Generates a key in the public format: `sb_<type>_`, 22 random characters, `_`, 8 characters of a checksum over ref and key. */
export async function newApiKey(ref: string, type: (typeof API_KEY_TYPES)[number]) {
  const random = base64Url(crypto.getRandomValues(new Uint8Array(RANDOM_BYTES)).buffer).slice(0, RANDOM_LENGTH)
  const body = `sb_${type}_${random}`
  const key = `${body}_${(await hashApiKey(`${ref}|${body}`)).slice(0, CHECKSUM_LENGTH)}`
  return { key, prefix: body.slice(0, PREFIX_LENGTH - RANDOM_LENGTH), hash: await hashApiKey(key) }
}

/** SHA-256 in base64url, by which a key is looked up. A key has 132 random bits, so it needs no salt. */
export async function hashApiKey(key: string): Promise<string> {
  return base64Url(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(key)))
}

export const sealApiKey = (encryptionKey: string, { key, hash }: { key: string; hash: string }): Promise<string> =>
  seal(encryptionKey, key, apiKeyAssociatedData(hash))

export const openApiKey = (
  encryptionKey: string,
  { sealedKey, hash }: { sealedKey: string; hash: string },
): Promise<string> => unseal(encryptionKey, sealedKey, apiKeyAssociatedData(hash))
