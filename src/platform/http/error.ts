import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { isCanceled, isLockTimeout, isUnavailable } from '../db/postgres-errors.ts'

/** Status of each category, the part of a code before the dot, and of the codes that differ from their category. */
const STATUSES = {
  bad_request: 400,
  oauth: 400,
  // Codes that clients know, although they differ from the form of the other codes.
  notebook_cell_duplicate: 400,
  notebook_cell_unknown: 400,
  unauthorized: 401,
  'oauth.invalid_client': 401,
  payment_required: 402,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  conflict: 409,
  payload_too_large: 413,
  unsupported_media_type: 415,
  unprocessable: 422,
  too_many_requests: 429,
  internal_server_error: 500,
  service_unavailable: 503,
  // The status of the hosted service, which its clients know.
  'conflict.custom_hostname': 544 as ContentfulStatusCode,
} as const
type Category = keyof typeof STATUSES

/** Every error that a client can receive, with its text in v1. Codes are public (v2 sends them): never rename or reuse a code. */
const ERRORS = {
  'bad_request.malformed_json': 'The request body is not valid JSON',
  'bad_request.malformed_body': 'The request body cannot be read',
  'bad_request.validation_failed': 'The request is not valid',
  'bad_request.invalid_ref': 'Invalid project ref',
  'bad_request.invalid_slug': 'Invalid organization slug',
  'bad_request.sql': 'Failed to run sql query',
  'bad_request.sql_timeout': 'Failed to run sql query: it ran longer than allowed',
  'bad_request.sql_result_too_large': 'Failed to run sql query: its result is too large',
  'bad_request.migration_without_rollback': 'Failed to roll back: a migration has no rollback',
  'bad_request.driver': 'The database driver does not support this',
  'bad_request.build': 'Failed to bundle the function',
  'bad_request.eszip': 'eszip bundles are not supported: deploy the source with `supabase functions deploy --use-api`',
  'bad_request.root_key': 'Expected a 32 byte secret, hex-encoded (64 characters).',
  'bad_request.secrets': 'Too many secrets',
  'bad_request.api_keys': 'Too many API keys',
  'bad_request.addon': 'The add-on is not available',
  'bad_request.custom_hostname': 'The custom hostname is not available',
  'bad_request.custom_hostname.none': 'No custom hostname configuration found.',
  'bad_request.custom_hostname.not_configured': 'Custom hostname not configured for project',
  'bad_request.custom_hostname.not_pending': 'Project is not pending custom hostname verification.',
  'bad_request.custom_hostname.verified': 'Verification has been completed, please proceed to activation.',
  'bad_request.custom_hostname.unverified': 'Verification has not been completed.',
  'bad_request.custom_hostname.active': 'Custom hostname has already been activated.',
  'conflict.custom_hostname':
    'Delete the custom hostname associated with your project before attempting to create a new one.',
  'bad_request.vanity_subdomain': 'The vanity subdomain is not available',
  'bad_request.branch': 'Invalid branch configuration',
  'bad_request.pitr': 'PITR is not enabled for this project.',
  'bad_request.project.not_ready_for_deletion': 'Project not ready for deletion.',
  'bad_request.endpoint.test.disabled': 'Endpoint is disabled',
  'bad_request.endpoint.test.wrong_event_type': 'Provided event type is not subscribed to by the endpoint',
  'bad_request.endpoint.too_many': 'Too many endpoints',
  'bad_request.log_drains': 'Too many log drains',
  notebook_cell_duplicate: 'Two cells of the notebook have the same id',
  notebook_cell_unknown: 'The notebook has no such cell',
  'bad_request.private_link': 'Private link is not available',
  'bad_request.sso_domain': 'The domain belongs to another SSO identity provider',
  'bad_request.sso_providers': 'Too many SSO identity providers',
  'bad_request.third_party_auths': 'Too many third-party auth integrations',
  'oauth.invalid_client': 'Invalid client: unknown client_id or wrong client_secret',
  'oauth.invalid_grant': 'The code or refresh token is not valid',
  'oauth.invalid_scope': 'The scope was not approved',
  'oauth.invalid_target': 'Unknown resource: it must be a URL of this server',
  'oauth.unauthorized_client': 'The application may not use this grant type',
  'oauth.unsupported_grant_type': 'Unsupported grant type',
  unauthorized: 'Unauthorized',
  'forbidden.permission_denied': 'Forbidden action',
  'forbidden.access_disabled': 'Forbidden action',
  method_not_allowed: 'Method not allowed',
  'not_found.route': 'No such endpoint',
  'not_found.project': 'Project not found',
  'not_found.organization': 'Organization not found',
  'not_found.branch': 'Branch not found',
  'not_found.github_app':
    'This installation has no GitHub App: GITHUB_APP_ID, GITHUB_APP_PRIVATE_KEY and GITHUB_WEBHOOK_SECRET are not set',
  'not_found.action_run': 'Action run not found',
  'not_found.migration': 'Migration not found',
  'not_found.jit_access': 'The member has no just-in-time access to the database',
  'not_found.backup': 'Backup not found',
  'not_found.backup_schedule': 'No backups are scheduled for this project',
  'not_found.api_key': 'API key not found',
  'not_found.claim_token': 'The project has no claim token',
  'not_found.project_claim': 'Project claim not found: the token is unknown, used, expired or revoked',
  'not_found.realtime': 'No Realtime server runs for this project',
  'not_found.read_replica': 'Read replica not found',
  'not_found.addon': 'The project does not have this add-on',
  'not_found.signing_key': 'Signing key not found',
  'not_found.snippet': 'Snippet not found',
  'not_found.notebook': 'Notebook not found',
  'not_found.function': 'Function not found',
  'not_found.function_source': 'The source of the function no longer exists: deploy the function again',
  'not_found.endpoint': 'Endpoint not found',
  'not_found.delivery': 'Delivery not found',
  'not_found.saml': 'SAML 2.0 support is not enabled for this project',
  'not_found.saml_or_sso_provider': 'Either SAML 2.0 was not enabled for this project, or the provider does not exist',
  'not_found.assertion_issuer': 'The organization has no assertion issuer',
  'not_found.oauth_app': 'OAuth application not found',
  'not_found.sso_provider': 'SSO Identity Provider not found',
  'not_found.third_party_auth': 'Third-party auth integration not found',
  'not_found.log_drain': 'Log drain not found',
  'not_found.member': 'Member not found',
  'not_found.worker': 'Worker not found',
  'payment_required.branching': "The organization's plan does not cover branches",
  'payment_required.functions': 'Maximum number of functions reached for Plan',
  'payment_required.members': 'This feature requires the Enterprise organization plan.',
  'payment_required.log_drains': 'This feature requires the Pro, Team, or Enterprise organization plan.',
  'payment_required.backup_schedule': 'This feature requires the Pro, Team, or Enterprise organization plan.',
  'conflict.log_drain_name': 'Log drain name already in use',
  'payment_required.private_link': 'This feature requires the Team, or Enterprise organization plan.',
  'payment_required.assertions': 'This feature requires the Team, or Enterprise organization plan.',
  'conflict.function_slug': 'Duplicated function slug',
  'conflict.api_key_name': 'API key name already in use',
  'conflict.backup_status': 'The backup cannot be restored',
  'conflict.restore_point': 'Restore point name already in use',
  'conflict.branch_name': 'Branch name already in use',
  'conflict.run_ended': 'The run has ended',
  'conflict.idempotency_key': 'The idempotency key was used for another migration',
  'conflict.login_roles': 'Too many login roles',
  'conflict.invitations': 'Nobody was invited',
  'conflict.last_owner': 'The last owner of an organization cannot be removed or demoted',
  'conflict.legacy_signing_key': 'The JWT secret is already a signing key',
  'conflict.signing_key_id': 'The project already has a signing key with this id',
  'conflict.signing_key_status': 'The signing key is not in a state that allows this',
  'conflict.signing_keys': 'Too many signing keys',
  'conflict.standby_key': 'Another signing key is on standby',
  'conflict.private_link_association': 'The database is already shared with this AWS account',
  'conflict.public_oauth_app': 'The OAuth application has no secret: it is public',
  'conflict.project_name': 'Project name already in use',
  'conflict.project_status': 'The project is not in a state that allows this',
  request_timeout: 'Request timeout',
  payload_too_large: 'The request body is too large',
  unsupported_media_type: 'Unsupported content type of the request body',
  'unprocessable.branching_disabled': 'Preview branching is not enabled for this project.',
  'unprocessable.branch': 'The branch does not allow this',
  'unprocessable.too_many_invitations': 'The organization has too many open invitations',
  'unprocessable.too_many_snippets': 'Too many snippets',
  'unprocessable.too_many_notebooks': 'The project has too many notebooks',
  'unprocessable.too_many_workers': 'The project has too many workers',
  'unprocessable.too_many_private_links': 'The project has too many private link associations',
  'unprocessable.sso_entity': 'An SSO identity provider with this entity ID already exists',
  'unprocessable.transfer': 'The project cannot be transferred',
  'unprocessable.too_many_oauth_apps': 'The organization has too many OAuth applications',
  'unprocessable.too_many_uploads': 'The project has too many open uploads',
  too_many_requests: 'Rate limit exceeded',
  internal_server_error: 'Internal Server Error',
  'service_unavailable.control_database': 'The control plane is busy: try again shortly',
  'service_unavailable.build': 'The function cannot be bundled at the moment: try again shortly',
  'service_unavailable.bucket': 'The bucket cannot be reached: try again shortly',
  'service_unavailable.memory': 'Too many large requests at the same time: try again shortly',
  'service_unavailable.name_resolution': 'Host names cannot be resolved at the moment: try again shortly',
  'service_unavailable.project_database': 'The database of the project cannot be reached',
} as const satisfies Partial<Record<Category | `${Category}.${string}`, string>>

export type ErrorCode = keyof typeof ERRORS

/** Texts of v2 that do not follow from the code and the text of v1. */
const V2_MESSAGES: Partial<Record<ErrorCode, string>> = {
  notebook_cell_duplicate: `Bad Request: ${ERRORS.notebook_cell_duplicate}`,
  notebook_cell_unknown: `Bad Request: ${ERRORS.notebook_cell_unknown}`,
  'forbidden.permission_denied': 'Forbidden: Permission denied',
  'forbidden.access_disabled': 'Forbidden: Access disabled',
}

export type ApiVersion = 'v1' | 'v2'

/** Message of a code in an API version. */
export function messageOf(code: ErrorCode, version: ApiVersion): string {
  if (version === 'v1') return ERRORS[code]
  const [category = '', ...names] = code.split('.')
  const title = category.replaceAll(/(?:^|_)([a-z])/g, (_, letter) => ` ${letter.toUpperCase()}`).trim()
  return V2_MESSAGES[code] ?? (names.length > 0 ? `${title}: ${ERRORS[code]}` : title)
}

/** HTTP status of a code. */
export function statusOf(code: ErrorCode): ContentfulStatusCode {
  const statuses: Partial<Record<string, ContentfulStatusCode>> = STATUSES
  return statuses[code] ?? statuses[code.split('.')[0] ?? ''] ?? STATUSES.internal_server_error
}

/** Maximum number of issues in one error: more than an object has fields, as lists in a small body can have very many. */
export const ISSUES_MAX = 500

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
    super(ERRORS[code], { cause })
    this.code = code
    this.detail = detail ?? (issues.map(({ field, message }) => `${field}: ${message}`).join('; ') || undefined)
    this.issues = issues
    this.extra = extra
  }

  get status(): ContentfulStatusCode {
    return statusOf(this.code)
  }

  static from(error: unknown): ApiError {
    if (error instanceof ApiError) return error
    return new ApiError(codeOf(error), { cause: error })
  }
}

function codeOf(error: unknown): ErrorCode {
  if (isUnavailable(error) || isLockTimeout(error)) return 'service_unavailable.control_database'
  return isCanceled(error) ? 'request_timeout' : 'internal_server_error'
}

/** Message of an internal error in v1, which names the endpoint by its summary. */
export const failureMessage = (summary: string): string =>
  `Failed to ${summary.charAt(0).toLowerCase()}${summary.slice(1)}`

function v1({ code, message, detail, extra }: ApiError, summary?: string) {
  const text = code === 'internal_server_error' && summary ? failureMessage(summary) : message
  return { message: detail ? `${text}: ${detail}` : text, ...extra }
}

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
function oauth(error: ApiError, summary?: string) {
  const { message, ...extra } = v1(error, summary)
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
export function renderError(path: string, error: ApiError, requestId: string, summary?: string) {
  if (path.startsWith('/v2/')) return v2(error, requestId)
  return isOAuthPath(path) ? oauth(error, summary) : v1(error, summary)
}
