import { exportJWK, generateKeyPair, generateSecret, type JWK } from 'jose'
import { inject } from 'vitest'
import type { SystemCtx } from '../../src/ctx.ts'
import { sealSecret } from '../../src/model/secrets/project.ts'
import { projects } from '../../src/model/tables/index.ts'
import { control, type TestOrganization } from './api.ts'

export const ALGORITHMS = ['HS256', 'ES256', 'RS256', 'EdDSA'] as const
export type Algorithm = (typeof ALGORITHMS)[number]

/** Makes a key without our code. */
export async function newPrivateJwk(algorithm: Algorithm): Promise<JWK> {
  if (algorithm === 'HS256') return exportJWK(await generateSecret('HS256', { extractable: true }))
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true })
  return exportJWK(privateKey)
}

/** Inserts only the row of a project, for tests of the management API. */
export async function newProjectRow({ id: organizationId }: Pick<TestOrganization, 'id'>): Promise<string> {
  const ref = Array.from({ length: 20 }, () => String.fromCharCode(97 + Math.floor(Math.random() * 26))).join('')
  const ctx = { config: { ENCRYPTION_KEY: inject('encryptionKey') } } as unknown as SystemCtx
  await control.insert(projects).values({
    ...{ ref, organizationId, name: ref, region: 'us-east-1', instanceSize: 'nano', status: 'ACTIVE_HEALTHY' },
    sealedPassword: '',
    sealedRunnerPassword: await sealSecret(ctx, ref, 'runner_password', ref),
  })
  return ref
}

export const keysPath = (ref: string, id = '') => `/v1/projects/${ref}/config/auth/signing-keys${id && `/${id}`}`
