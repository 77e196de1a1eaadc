import { seal, unseal } from '../../platform/secrets/seal.ts'
import { authSecretAssociatedData } from './associated-data.ts'

export const sealAuthSecret = (encryptionKey: string, ref: string, field: string, value: string): Promise<string> =>
  seal(encryptionKey, value, authSecretAssociatedData(ref, field))

export const openAuthSecret = (encryptionKey: string, ref: string, field: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, authSecretAssociatedData(ref, field))
