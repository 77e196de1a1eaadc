import type { SystemCtx } from '../../env.ts'
import type { Jwk } from '../../platform/jwt/jwk.ts'
import { seal, unseal } from '../../platform/secrets/seal.ts'
import { signingKeyPlace } from './bindings.ts'

interface Owner {
  ref: string
  id: string
}

export const sealSigningKey = ({ config }: SystemCtx, owner: Owner, jwk: Jwk): Promise<string> =>
  seal(config.ENCRYPTION_KEY, JSON.stringify(jwk), signingKeyPlace(owner))

export const openSigningKey = async ({ config }: SystemCtx, owner: Owner, sealed: string): Promise<Jwk> =>
  JSON.parse(await unseal(config.ENCRYPTION_KEY, sealed, signingKeyPlace(owner)))
