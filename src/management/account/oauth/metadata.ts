import type { Hono } from 'hono'
import type { SystemCtx } from '../../../ctx.ts'
import { SCOPES } from '../../../model/scopes.ts'
import { GRANT_TYPES } from '../../../model/tables/index.ts'
import type { AppEnv } from '../../kernel/app-env.ts'
import { rateLimit } from '../../kernel/rate-limits.ts'
import { RESPONSE_MODES, RESPONSE_TYPES } from './schema.ts'
import { publicKeysOf, SIGNING_ALGORITHM } from './signing-key.ts'

/** Serves the metadata for OAuth clients (RFC 8414) and of the API as a resource (RFC 9728). It is public. */
export function mountOAuthMetadata(app: Hono<AppEnv>): void {
  app.get('/.well-known/oauth-authorization-server', rateLimit({}), (c) => c.json(authorizationServer(c.var.ctx)))
  // OpenID Connect Discovery 1.0, 3. Only this document lists the scope `openid`, because no codes are issued for it.
  app.get('/.well-known/openid-configuration', rateLimit({}), (c) =>
    c.json({ ...authorizationServer(c.var.ctx), scopes_supported: ['openid', ...SCOPES] }),
  )
  app.get(KEYS_PATH, rateLimit({}), async (c) =>
    // Requests without an Origin get the CORS header too, because a shared cache may serve their reply to pages of other origins.
    c.json({ keys: await publicKeysOf(c.var.ctx) }, 200, {
      'cache-control': 'public, max-age=300',
      'access-control-allow-origin': '*',
    }),
  )
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

const KEYS_PATH = '/.well-known/jwks.json'

const authorizationServer = ({ config: { BASE_URL: issuer } }: SystemCtx) => ({
  issuer,
  authorization_endpoint: `${issuer}/v1/oauth/authorize`,
  token_endpoint: `${issuer}/v1/oauth/token`,
  registration_endpoint: `${issuer}/v1/oauth/register`,
  jwks_uri: `${issuer}${KEYS_PATH}`,
  scopes_supported: SCOPES,
  response_types_supported: RESPONSE_TYPES,
  response_modes_supported: RESPONSE_MODES,
  grant_types_supported: GRANT_TYPES,
  authorization_grant_profiles_supported: ['urn:ietf:params:oauth:grant-profile:id-jag'],
  subject_types_supported: ['public'],
  id_token_signing_alg_values_supported: [SIGNING_ALGORITHM],
  token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post', 'none'],
  code_challenge_methods_supported: ['S256', 'plain'],
  service_documentation: `${issuer}/docs`,
})
