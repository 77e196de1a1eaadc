import { seal, unseal } from './seal.ts'

const place = (ref: string, field: string) => `project_settings/${ref}/auth/${field}`

export const sealAuthSecret = (encryptionKey: string, ref: string, field: string, value: string): Promise<string> =>
  seal(encryptionKey, value, place(ref, field))

export const openAuthSecret = (encryptionKey: string, ref: string, field: string, sealed: string): Promise<string> =>
  unseal(encryptionKey, sealed, place(ref, field))
