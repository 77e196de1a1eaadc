import type { Hono } from 'hono'
import { SCOPES } from '../../auth/scopes.ts'
import { GRANT_TYPES } from '../../db/schema/index.ts'
import type { AppEnv } from '../../env.ts'
import { rateLimit } from '../../http/mount.ts'
import { RESPONSE_MODES, RESPONSE_TYPES } from './schema.ts'

/** What OAuth clients read before anything else (RFC 8414 and, for the API itself, RFC 9728). Public and the same for everybody. */
export function mountOAuthMetadata(app: Hono<AppEnv>): void {
  app.get('/.well-known/oauth-authorization-server', rateLimit({}), (c) => {
    const { BASE_URL: issuer } = c.var.ctx.config
    return c.json({
      issuer,
      authorization_endpoint: `${issuer}/v1/oauth/authorize`,
      token_endpoint: `${issuer}/v1/oauth/token`,
      registration_endpoint: `${issuer}/v1/oauth/register`,
      scopes_supported: SCOPES,
      response_types_supported: RESPONSE_TYPES,
      response_modes_supported: RESPONSE_MODES,
      grant_types_supported: GRANT_TYPES,
      token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post', 'none'],
      code_challenge_methods_supported: ['S256', 'plain'],
      service_documentation: `${issuer}/docs`,
    })
  })
  app.get('/.well-known/oauth-protected-resource', rateLimit({}), (c) => {
    const { BASE_URL: resource } = c.var.ctx.config
    return c.json({
      resource,
      authorization_servers: [resource],
      scopes_supported: SCOPES,
      bearer_methods_supported: ['header'],
      resource_documentation: `${resource}/docs`,
    })
  })
}
