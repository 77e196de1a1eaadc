import { exportJWK, generateKeyPair, generateSecret, type JWK } from 'jose'
import { inject } from 'vitest'
import type { SystemCtx } from '../../src/ctx.ts'
import { sealSecret } from '../../src/model/secrets/project.ts'
import { randomLetters } from '../../src/platform/http/common-values.ts'
import type { TestOrganization } from './api.ts'
import { insertProject } from './webhooks.ts'

export const ALGORITHMS = ['HS256', 'ES256', 'RS256', 'EdDSA'] as const
export type Algorithm = (typeof ALGORITHMS)[number]

/** Makes a key without our code. */
export async function newPrivateJwk(algorithm: Algorithm): Promise<JWK> {
  if (algorithm === 'HS256') return exportJWK(await generateSecret('HS256', { extractable: true }))
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true })
  return exportJWK(privateKey)
}

/** Inserts only the row of a project, with a secret that can be opened. */
export async function newProjectRow(organization: Pick<TestOrganization, 'id'>): Promise<string> {
  const ref = randomLetters()
  const ctx = { config: { ENCRYPTION_KEY: inject('encryptionKey') } } as unknown as SystemCtx
  return insertProject(organization, { ref, sealedRunnerPassword: await sealSecret(ctx, ref, 'runner_password', ref) })
}

export const keysPath = (ref: string, id = '') => `/v1/projects/${ref}/config/auth/signing-keys${id && `/${id}`}`
