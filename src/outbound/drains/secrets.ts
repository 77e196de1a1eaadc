import { logDrainAssociatedData } from '../../model/secrets/associated-data.ts'
import { seal, unseal } from '../../platform/secrets/seal.ts'

/** Encrypts all secret fields of a drain's config together. */
export const sealSecrets = (setting: string, drainId: string, secrets: Record<string, unknown>): Promise<string> =>
  seal(setting, JSON.stringify(secrets), logDrainAssociatedData(drainId))

export const openSecrets = async (setting: string, drainId: string, sealed: string): Promise<Record<string, unknown>> =>
  JSON.parse(await unseal(setting, sealed, logDrainAssociatedData(drainId)))
