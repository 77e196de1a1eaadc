import { authSecretPlace } from './places.ts'
import { seal, unseal } from './seal.ts'

export const sealAuthSecret = (encryptionKey: string, ref: string, field: string, value: string): Promise<string> =>
  seal(encryptionKey, value, authSecretPlace(ref, field))

export const openAuthSecret = (encryptionKey: string, ref: string, field: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, authSecretPlace(ref, field))
