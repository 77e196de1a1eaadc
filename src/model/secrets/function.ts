import { seal, unseal } from '../../platform/secrets/seal.ts'
import { functionSecretPlace } from './bindings.ts'

export const sealFunctionSecret = (encryptionKey: string, ref: string, name: string, value: string): Promise<string> =>
  seal(encryptionKey, value, functionSecretPlace(ref, name))

export const openFunctionSecret = (encryptionKey: string, ref: string, name: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, functionSecretPlace(ref, name))
