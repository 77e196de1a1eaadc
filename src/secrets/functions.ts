import type { SystemCtx } from '../env.ts'
import { seal, unseal } from './seal.ts'

const place = (ref: string, name: string) => `projects/${ref}/function_secrets/${name}`

/** What the functions and workers of a project find in their environment under a name. */
export const sealFunctionSecret = ({ config }: Pick<SystemCtx, 'config'>, ref: string, name: string, value: string) =>
  seal(config.ENCRYPTION_KEY, value, place(ref, name))

interface Sealed {
  name: string
  sealedValue: string
}

export const openFunctionSecret = (
  { config }: Pick<SystemCtx, 'config'>,
  ref: string,
  { name, sealedValue }: Sealed,
): Promise<string> => unseal(config.ENCRYPTION_KEY, sealedValue, place(ref, name))
