import { seal, unseal } from '../../platform/secrets/seal.ts'
import { functionSecretAssociatedData } from './associated-data.ts'

export const sealFunctionSecret = (encryptionKey: string, ref: string, name: string, value: string): Promise<string> =>
  seal(encryptionKey, value, functionSecretAssociatedData(ref, name))

export const openFunctionSecret = (encryptionKey: string, ref: string, name: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, functionSecretAssociatedData(ref, name))
