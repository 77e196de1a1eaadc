import { seal, unseal } from './seal.ts'

const place = (ref: string, name: string) => `function_secrets/${ref}/${name}`

export const sealFunctionSecret = (encryptionKey: string, ref: string, name: string, value: string): Promise<string> =>
  seal(encryptionKey, value, place(ref, name))

export const openFunctionSecret = (encryptionKey: string, ref: string, name: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, place(ref, name))
