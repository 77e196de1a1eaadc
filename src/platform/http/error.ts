import { HTTPException } from 'hono/http-exception'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { isCancelled, isUnavailable } from '../db/postgres-errors.ts'

interface Entry {
  status: ContentfulStatusCode
  /** Text of v1. v2 has its own text if the specification gives one. */
  message: string
  v2?: string
}

/** Every error that a client can receive. Codes are public (v2 sends them): never rename or reuse a code. */
export const ERRORS = {
  'bad_request.malformed_json': { status: 400, message: 'The request body is not valid JSON' },
  'bad_request.malformed_body': { status: 400, message: 'The request body cannot be read' },
  'bad_request.validation_failed': { status: 400, message: 'The request is not valid' },
  'bad_request.invalid_ref': { status: 400, message: 'Invalid project ref', v2: 'Bad Request: Invalid project ref' },
  'bad_request.invalid_slug': {
    status: 400,
    message: 'Invalid organization slug',
    v2: 'Bad Request: Invalid organization slug',
  },
  'bad_request.sql': { status: 400, message: 'Failed to run sql query' },
  'bad_request.sql_timeout': { status: 400, message: 'Failed to run sql query: it ran longer than allowed' },
  'bad_request.sql_result_too_large': { status: 400, message: 'Failed to run sql query: its result is too large' },
  'bad_request.migration_without_rollback': {
    status: 400,
    message: 'Failed to roll back: a migration has no rollback',
  },
  'bad_request.driver': { status: 400, message: 'The database driver does not support this' },
  'bad_request.build': { status: 400, message: 'Failed to bundle the function' },
  'bad_request.eszip': {
    status: 400,
    message: 'eszip bundles are not supported: deploy the source with `supabase functions deploy --use-api`',
  },
  'bad_request.root_key': { status: 400, message: 'Expected a 32 byte secret, hex-encoded (64 characters).' },
  'bad_request.secrets': { status: 400, message: 'Too many secrets' },
  'bad_request.api_keys': { status: 400, message: 'Too many API keys' },
  'bad_request.addon': { status: 400, message: 'The add-on is not available' },
  'bad_request.custom_hostname': { status: 400, message: 'The custom hostname is not available' },
  'bad_request.custom_hostname.none': { status: 400, message: 'No custom hostname configuration found.' },
  'bad_request.custom_hostname.not_configured': {
    status: 400,
    message: 'Custom hostname not configured for project',
  },
  'bad_request.custom_hostname.not_pending': {
    status: 400,
    message: 'Project is not pending custom hostname verification.',
  },
  'bad_request.custom_hostname.verified': {
    status: 400,
    message: 'Verification has been completed, please proceed to activation.',
  },
  'bad_request.custom_hostname.unverified': { status: 400, message: 'Verification has not been completed.' },
  'bad_request.custom_hostname.active': { status: 400, message: 'Custom hostname has already been activated.' },
  // The status of the hosted service, which its clients know.
  'conflict.custom_hostname': {
    status: 544 as ContentfulStatusCode,
    message: 'Delete the custom hostname associated with your project before attempting to create a new one.',
  },
  'bad_request.vanity_subdomain': { status: 400, message: 'The vanity subdomain is not available' },
  'bad_request.branch': { status: 400, message: 'Invalid branch configuration' },
  'bad_request.pitr': { status: 400, message: 'PITR is not enabled for this project.' },
  'bad_request.project.not_ready_for_deletion': { status: 400, message: 'Project not ready for deletion.' },
  'bad_request.endpoint.test.disabled': {
    status: 400,
    message: 'Endpoint is disabled',
    v2: 'Bad Request: Endpoint is disabled',
  },
  'bad_request.endpoint.test.wrong_event_type': {
    status: 400,
    message: 'Provided event type is not subscribed to by the endpoint',
    v2: 'Bad Request: Provided event type is not subscribed to by the endpoint',
  },
  'bad_request.endpoint.too_many': {
    status: 400,
    message: 'Too many endpoints',
    v2: 'Bad Request: Too many endpoints',
  },
  'bad_request.log_drains': { status: 400, message: 'Too many log drains', v2: 'Bad Request: Too many log drains' },
  // Codes that clients know, although they differ from the form of the other codes.
  notebook_cell_duplicate: {
    status: 400,
    message: 'Two cells of the notebook have the same id',
    v2: 'Bad Request: Two cells of the notebook have the same id',
  },
  notebook_cell_unknown: {
    status: 400,
    message: 'The notebook has no such cell',
    v2: 'Bad Request: The notebook has no such cell',
  },
  'bad_request.private_link': {
    status: 400,
    message: 'Private link is not available',
    v2: 'Bad Request: Private link is not available',
  },
  'bad_request.sso_domain': { status: 400, message: 'The domain belongs to another SSO identity provider' },
  'bad_request.sso_providers': { status: 400, message: 'Too many SSO identity providers' },
  'bad_request.third_party_auths': { status: 400, message: 'Too many third-party auth integrations' },
  'oauth.invalid_client': { status: 401, message: 'Invalid client: unknown client_id or wrong client_secret' },
  'oauth.invalid_grant': { status: 400, message: 'The code or refresh token is not valid' },
  'oauth.invalid_scope': { status: 400, message: 'The scope was not approved' },
  'oauth.invalid_target': { status: 400, message: 'Unknown resource: it must be a URL of this server' },
  'oauth.unauthorized_client': { status: 400, message: 'The application may not use this grant type' },
  'oauth.unsupported_grant_type': { status: 400, message: 'Unsupported grant type' },
  unauthorized: { status: 401, message: 'Unauthorized', v2: 'Unauthorized' },
  'forbidden.permission_denied': { status: 403, message: 'Forbidden action', v2: 'Forbidden: Permission denied' },
  'forbidden.access_disabled': { status: 403, message: 'Forbidden action', v2: 'Forbidden: Access disabled' },
  method_not_allowed: { status: 405, message: 'Method not allowed', v2: 'Method Not Allowed' },
  'not_found.route': { status: 404, message: 'No such endpoint', v2: 'Not Found: No such endpoint' },
  'not_found.project': { status: 404, message: 'Project not found', v2: 'Not Found: Project not found' },
  'not_found.organization': {
    status: 404,
    message: 'Organization not found',
    v2: 'Not Found: Organization not found',
  },
  'not_found.branch': { status: 404, message: 'Branch not found', v2: 'Not Found: Branch not found' },
  'not_found.github_app': {
    status: 404,
    message:
      'This installation has no GitHub App: GITHUB_APP_ID, GITHUB_APP_PRIVATE_KEY and GITHUB_WEBHOOK_SECRET are not set',
  },
  'not_found.action_run': { status: 404, message: 'Action run not found' },
  'not_found.migration': { status: 404, message: 'Migration not found' },
  'not_found.jit_access': { status: 404, message: 'The member has no just-in-time access to the database' },
  'not_found.backup': { status: 404, message: 'Backup not found' },
  'not_found.backup_schedule': { status: 404, message: 'No backups are scheduled for this project' },
  'not_found.api_key': { status: 404, message: 'API key not found' },
  'not_found.claim_token': { status: 404, message: 'The project has no claim token' },
  'not_found.project_claim': {
    status: 404,
    message: 'Project claim not found: the token is unknown, used, expired or revoked',
  },
  'not_found.realtime': { status: 404, message: 'No Realtime server runs for this project' },
  'not_found.read_replica': { status: 404, message: 'Read replica not found' },
  'not_found.addon': { status: 404, message: 'The project does not have this add-on' },
  'not_found.signing_key': { status: 404, message: 'Signing key not found' },
  'not_found.snippet': { status: 404, message: 'Snippet not found' },
  'not_found.notebook': { status: 404, message: 'Notebook not found', v2: 'Not Found: Notebook not found' },
  'not_found.function': { status: 404, message: 'Function not found' },
  'not_found.function_source': {
    status: 404,
    message: 'The source of the function no longer exists: deploy the function again',
  },
  'not_found.endpoint': { status: 404, message: 'Endpoint not found', v2: 'Not Found: Endpoint not found' },
  'not_found.delivery': { status: 404, message: 'Delivery not found', v2: 'Not Found: Delivery not found' },
  'not_found.saml': { status: 404, message: 'SAML 2.0 support is not enabled for this project' },
  'not_found.saml_or_sso_provider': {
    status: 404,
    message: 'Either SAML 2.0 was not enabled for this project, or the provider does not exist',
  },
  'not_found.assertion_issuer': { status: 404, message: 'The organization has no assertion issuer' },
  'not_found.oauth_app': { status: 404, message: 'OAuth application not found' },
  'not_found.sso_provider': { status: 404, message: 'SSO Identity Provider not found' },
  'not_found.third_party_auth': { status: 404, message: 'Third-party auth integration not found' },
  'not_found.log_drain': { status: 404, message: 'Log drain not found', v2: 'Not Found: Log drain not found' },
  'not_found.member': { status: 404, message: 'Member not found', v2: 'Not Found: Member not found' },
  'not_found.worker': { status: 404, message: 'Worker not found', v2: 'Not Found: Worker not found' },
  'payment_required.branching': {
    status: 402,
    message: "The organization's plan does not cover branches",
    v2: "Payment Required: The organization's plan does not cover branches",
  },
  'payment_required.functions': { status: 402, message: 'Maximum number of functions reached for Plan' },
  'payment_required.members': {
    status: 402,
    message: 'This feature requires the Enterprise organization plan.',
    v2: 'Payment Required: This feature requires the Enterprise organization plan.',
  },
  'payment_required.log_drains': {
    status: 402,
    message: 'This feature requires the Pro, Team, or Enterprise organization plan.',
    v2: 'Payment Required: This feature requires the Pro, Team, or Enterprise organization plan.',
  },
  'payment_required.backup_schedule': {
    status: 402,
    message: 'This feature requires the Pro, Team, or Enterprise organization plan.',
  },
  'conflict.log_drain_name': {
    status: 409,
    message: 'Log drain name already in use',
    v2: 'Conflict: Log drain name already in use',
  },
  'payment_required.private_link': {
    status: 402,
    message: 'This feature requires the Team, or Enterprise organization plan.',
    v2: 'Payment Required: This feature requires the Team, or Enterprise organization plan.',
  },
  'payment_required.assertions': {
    status: 402,
    message: 'This feature requires the Team, or Enterprise organization plan.',
  },
  'conflict.function_slug': { status: 409, message: 'Duplicated function slug' },
  'conflict.api_key_name': { status: 409, message: 'API key name already in use' },
  'conflict.backup_status': { status: 409, message: 'The backup cannot be restored' },
  'conflict.restore_point': { status: 409, message: 'Restore point name already in use' },
  'conflict.branch_name': { status: 409, message: 'Branch name already in use' },
  'conflict.run_ended': { status: 409, message: 'The run has ended' },
  'conflict.idempotency_key': { status: 409, message: 'The idempotency key was used for another migration' },
  'conflict.login_roles': { status: 409, message: 'Too many login roles' },
  'conflict.invitations': { status: 409, message: 'Nobody was invited', v2: 'Conflict: Nobody was invited' },
  'conflict.last_owner': {
    status: 409,
    message: 'The last owner of an organization cannot be removed or demoted',
    v2: 'Conflict: The last owner of an organization cannot be removed or demoted',
  },
  'conflict.legacy_signing_key': { status: 409, message: 'The JWT secret is already a signing key' },
  'conflict.signing_key_id': { status: 409, message: 'The project already has a signing key with this id' },
  'conflict.signing_key_status': { status: 409, message: 'The signing key is not in a state that allows this' },
  'conflict.signing_keys': { status: 409, message: 'Too many signing keys' },
  'conflict.standby_key': { status: 409, message: 'Another signing key is on standby' },
  'conflict.private_link_association': {
    status: 409,
    message: 'The database is already shared with this AWS account',
    v2: 'Conflict: The database is already shared with this AWS account',
  },
  'conflict.public_oauth_app': { status: 409, message: 'The OAuth application has no secret: it is public' },
  'conflict.project_name': { status: 409, message: 'Project name already in use' },
  'conflict.project_status': { status: 409, message: 'The project is not in a state that allows this' },
  request_timeout: { status: 408, message: 'Request timeout', v2: 'Request Timeout' },
  payload_too_large: { status: 413, message: 'The request body is too large' },
  unsupported_media_type: { status: 415, message: 'Unsupported content type of the request body' },
  'unprocessable.branching_disabled': { status: 422, message: 'Preview branching is not enabled for this project.' },
  'unprocessable.branch': { status: 422, message: 'The branch does not allow this' },
  'unprocessable.too_many_invitations': {
    status: 422,
    message: 'The organization has too many open invitations',
    v2: 'Unprocessable: The organization has too many open invitations',
  },
  'unprocessable.too_many_snippets': { status: 422, message: 'Too many snippets' },
  'unprocessable.too_many_notebooks': {
    status: 422,
    message: 'The project has too many notebooks',
    v2: 'Unprocessable: The project has too many notebooks',
  },
  'unprocessable.too_many_workers': { status: 422, message: 'The project has too many workers' },
  'unprocessable.too_many_private_links': {
    status: 422,
    message: 'The project has too many private link associations',
    v2: 'Unprocessable: The project has too many private link associations',
  },
  'unprocessable.sso_entity': { status: 422, message: 'An SSO identity provider with this entity ID already exists' },
  'unprocessable.transfer': {
    status: 422,
    message: 'The project cannot be transferred',
    v2: 'Unprocessable: The project cannot be transferred',
  },
  'unprocessable.too_many_oauth_apps': { status: 422, message: 'The organization has too many OAuth applications' },
  'unprocessable.too_many_uploads': { status: 422, message: 'The project has too many open uploads' },
  too_many_requests: { status: 429, message: 'Rate limit exceeded', v2: 'Too Many Requests' },
  internal_server_error: { status: 500, message: 'Internal Server Error', v2: 'Internal Server Error' },
  'service_unavailable.control_database': { status: 503, message: 'The control plane is busy: try again shortly' },
  'service_unavailable.build': {
    status: 503,
    message: 'The function cannot be bundled at the moment: try again shortly',
  },
  'service_unavailable.bucket': { status: 503, message: 'The bucket cannot be reached: try again shortly' },
  'service_unavailable.memory': { status: 503, message: 'Too many large requests at the same time: try again shortly' },
  'service_unavailable.name_resolution': {
    status: 503,
    message: 'Host names cannot be resolved at the moment: try again shortly',
  },
  'service_unavailable.project_database': { status: 503, message: 'The database of the project cannot be reached' },
} as const satisfies Record<string, Entry>

export type ErrorCode = keyof typeof ERRORS

export type ApiVersion = 'v1' | 'v2'

/** Message of a code in an API version. */
export function messageOf(code: ErrorCode, version: ApiVersion): string {
  const { message, v2 }: Entry = ERRORS[code]
  return (version === 'v2' && v2) || message
}

/** A problem with one field of the input. `field` is its path, such as `body.name` or `query.page[size]`. */
export interface Issue {
  field: string
  code: string
  message: string
}

interface Details {
  /** Details of this occurrence: appended to the message in v1, the description in v2. */
  detail?: string
  issues?: readonly Issue[]
  /** Further members of the v1 body, such as the position of an SQL error. */
  extra?: Record<string, unknown>
  cause?: unknown
}

export class ApiError extends Error {
  override name = 'ApiError'
  readonly code: ErrorCode
  readonly detail: string | undefined
  readonly issues: readonly Issue[]
  readonly extra: Record<string, unknown>

  constructor(code: ErrorCode, { detail, issues = [], extra = {}, cause }: Details = {}) {
    super(ERRORS[code].message, { cause })
    this.code = code
    this.detail = detail ?? (issues.map(({ field, message }) => `${field}: ${message}`).join('; ') || undefined)
    this.issues = issues
    this.extra = extra
  }

  get status(): ContentfulStatusCode {
    return ERRORS[this.code].status
  }

  static from(error: unknown): ApiError {
    if (error instanceof ApiError) return error
    if (error instanceof HTTPException && error.status === 413) return new ApiError('payload_too_large')
    if (error instanceof HTTPException && error.status === 400) return new ApiError('bad_request.malformed_json')
    return new ApiError(codeOf(error), { cause: error })
  }
}

function codeOf(error: unknown): ErrorCode {
  if (isUnavailable(error)) return 'service_unavailable.control_database'
  return isCancelled(error) ? 'request_timeout' : 'internal_server_error'
}

const v1 = ({ message, detail, extra }: ApiError) => ({ message: detail ? `${message}: ${detail}` : message, ...extra })

const v2 = ({ code, detail, issues, extra }: ApiError, requestId: string) => ({
  error: {
    id: requestId,
    code,
    message: messageOf(code, 'v2'),
    ...(detail && { description: detail }),
    ...(Object.keys(extra).length > 0 && { meta: extra }),
    ...(issues.length > 0 && {
      issues: issues.map(({ field, code, message }) => ({ code, message: `${field}: ${message}`, meta: { field } })),
    }),
  },
})

export const isOAuthPath = (path: string): boolean => path.startsWith('/v1/oauth/')

/** Error body of RFC 6749, 5.2, which forbids quotes and backslashes in descriptions, together with the members of v1. */
function oauth(error: ApiError) {
  const { message, ...extra } = v1(error)
  const description = message.replaceAll(/["\\]/g, "'").replaceAll(/[^\x20-\x7e]/g, '?')
  return { error: oauthCode(error), error_description: description, message, ...extra }
}

function oauthCode({ code, status }: ApiError): string {
  if (code.startsWith('oauth.')) return code.slice('oauth.'.length)
  if (status === 402) return 'unauthorized_client'
  if (status === 408 || status === 429 || status === 503) return 'temporarily_unavailable'
  return status >= 500 ? 'server_error' : 'invalid_request'
}

/** The hosted service sends the same value. */
export const JSON_TYPE = { 'content-type': 'application/json; charset=utf-8' }

/** Renders an error in the format of the API version that the path belongs to. */
export function renderError(path: string, error: ApiError, requestId: string) {
  if (path.startsWith('/v2/')) return v2(error, requestId)
  return isOAuthPath(path) ? oauth(error) : v1(error)
}
