import { encodeBase64Url } from 'hono/utils/encode'
import type { ProjectAccess } from '../../auth/access.ts'
import { legacyKeys } from '../../auth/project-token.ts'
import type { Ctx } from '../../env.ts'
import { jwtSecretOf } from '../../secrets/project.ts'

/** The anon key is made to be public; the other one lifts every policy, so it shows only when asked for. */
export async function listApiKeys(ctx: Ctx, project: ProjectAccess, reveal: boolean) {
  const { ref, createdAt } = project
  const keys = await legacyKeys({ ref, createdAt, jwtSecret: await jwtSecretOf(ctx, project) })
  return [await toLegacyKey('anon', keys.anon, true), await toLegacyKey('service_role', keys.service_role, reveal)]
}

const PREFIX_LENGTH = 5
const HIDDEN = '·'.repeat(26)

async function toLegacyKey(role: string, key: string, reveal: boolean) {
  // Tokens all begin alike: what tells one from another is its signature.
  const signature = key.slice(key.lastIndexOf('.') + 1)
  const prefix = signature.slice(0, PREFIX_LENGTH)
  return {
    name: role,
    api_key: reveal ? key : prefix + HIDDEN,
    id: role,
    type: 'legacy' as const,
    prefix,
    hash: await digest(key),
    description: `Legacy ${role} API key`,
  }
}

async function digest(key: string): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(key))
  return encodeBase64Url(hash).replace(/=+$/, '')
}
