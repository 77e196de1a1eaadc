import { seal, unseal } from '../secrets/seal.ts'

const sealedFor = (drainId: string) => `log_drains/${drainId}/secrets`

/** The secret fields of a drain's config, together. */
export const sealSecrets = (setting: string, drainId: string, secrets: Record<string, unknown>): Promise<string> =>
  seal(setting, JSON.stringify(secrets), sealedFor(drainId))

export const openSecrets = async (setting: string, drainId: string, sealed: string): Promise<Record<string, unknown>> =>
  JSON.parse(await unseal(setting, sealed, sealedFor(drainId)))
