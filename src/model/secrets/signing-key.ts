import type { PlatformCtx } from '../../platform/context.ts'
import type { Jwk } from '../../platform/jwt/jwk.ts'
import { seal, unseal } from '../../platform/secrets/seal.ts'
import { signingKeyAssociatedData } from './associated-data.ts'

interface Owner {
  ref: string
  id: string
}

export const sealSigningKey = ({ config }: PlatformCtx, owner: Owner, jwk: Jwk): Promise<string> =>
  seal(config.ENCRYPTION_KEY, JSON.stringify(jwk), signingKeyAssociatedData(owner))

export const openSigningKey = async ({ config }: PlatformCtx, owner: Owner, sealed: string): Promise<Jwk> =>
  JSON.parse(await unseal(config.ENCRYPTION_KEY, sealed, signingKeyAssociatedData(owner)))
