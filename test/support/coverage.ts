import { routes } from '../../src/api.ts'
import { errorsOf } from '../../src/management/kernel/route.ts'
import type { ErrorCode } from '../../src/platform/http/error.ts'
import { COMMON_ERRORS, errorsOf as storageErrorsOf } from '../../src/services/storage/route.ts'
import { storageRoutes } from '../../src/services/storage/routes.ts'
import type { StorageErrorCode } from '../../src/services/storage/storage-error.ts'

/** Errors that no single row causes, tested for all rows at once: limits, faults, a full control database. */
const ANYWHERE: readonly ErrorCode[] = [
  // Other uploads would have to use all memory for half a minute.
  'service_unavailable.memory',
  'request_timeout',
  'too_many_requests',
  'internal_server_error',
  'service_unavailable.control_database',
]

const UNSEEN = [
  // A difference is given up after two minutes: the engine's own test has a shorter limit.
  'v1-diff-a-branch bad_request.sql_timeout',
  // These need the whole cluster to be unreachable, which the tests share: logins end without the project's database.
  ...['v1-delete-login-roles', 'v1-update-jit-access-config', 'v1-update-jit-access', 'v1-delete-jit-access'].map(
    (id) => `${id} service_unavailable.project_database`,
  ),
  // These need the database host to be unreachable, which the tests share: their requests need no running database.
  ...[
    'v1-create-a-project',
    'v1-get-available-regions',
    'v2-get-project-config',
    'v1-get-postgres-config',
    'v1-update-postgres-config',
    'v1-patch-postgres-config',
    'v1-update-ssl-enforcement-config',
    'v1-update-network-restrictions',
    'v1-patch-network-restrictions',
    'v1-list-all-network-bans',
    'v1-list-all-network-bans-enriched',
    'v1-delete-network-bans',
    'v1-modify-database-disk',
    'v1-get-disk-utilization',
    'v1-get-project-metrics',
    'v1-get-organization-entitlements',
    'v1-list-project-addons',
    'v1-apply-project-addon',
    'v1-remove-project-addon',
    'v1-create-a-branch',
    'v2-create-a-branch',
  ].map((id) => `${id} service_unavailable.project_database`),
  // These need the bucket to be unreachable, which the tests share: an installation of its own tests that.
  ...['v2-deploy-a-worker', 'v2-deploy-a-compute-instance'].map((id) => `${id} service_unavailable.bucket`),
  // An interrupted connection receives no answer.
  ...['v1-create-a-function', 'v1-update-a-function'].map((id) => `${id} bad_request.malformed_body`),
  // These are in test/services/functions/functions-outage.test.ts and test/builder/*.test.ts, whose Workers have logs
  // of their own.
  ...['v1-deploy-a-function', 'v1-create-a-function', 'v1-update-a-function'].flatMap((id) => [
    `${id} service_unavailable.bucket`,
    `${id} service_unavailable.build`,
  ]),
  'v1-get-a-function-body service_unavailable.bucket',
  // These belong to the driver neon, whose Worker has a log of its own in test/engine/neon.test.ts.
  ...[
    'v1-create-restore-point',
    'v1-update-backup-schedule',
    'v1-update-ssl-enforcement-config',
    'v1-update-network-restrictions',
    'v1-patch-network-restrictions',
    'v1-create-a-branch',
    'v2-create-a-branch',
    'v1-setup-a-read-replica',
    'v1-remove-a-read-replica',
    'v1-get-project-metrics',
  ].map((id) => `${id} bad_request.driver`),
  // This needs a driver without sizes, or one that names no default.
  'v1-remove-project-addon bad_request.addon',
  ...[
    'v1-restore-pitr-backup',
    'v1-apply-project-addon',
    'v1-remove-project-addon',
    'v1-setup-a-read-replica',
    'v1-remove-a-read-replica',
  ].map((id) => `${id} conflict.project_status`),
  // These are in test/management/database/private-link.test.ts, whose Worker has a log of its own.
  ...['conflict.private_link_association', 'unprocessable.too_many_private_links'].map(
    (code) => `v2-create-private-link-association ${code}`,
  ),
  'v1-remove-a-read-replica not_found.read_replica',
  ...['v1-restore-pitr-backup', 'v1-list-all-backups'].map((id) => `${id} service_unavailable.project_database`),
]

/** Errors that are tested for all rows at once, in requests of their own, or in a Worker whose log is not read. */
const ANYWHERE_IN_STORAGE: readonly StorageErrorCode[] = [
  ...COMMON_ERRORS,
  ...(['RequestAborted', 'BytesUnavailable', 'VersionMismatch'] as const),
]

const UNSEEN_IN_STORAGE = [
  // This needs a bucket of more objects than one request can delete: the engine's own test has a lower limit.
  'storage.bucket.empty TooManyObjects',
  // The schemas of these queries accept any text.
  ...['get_public', 'info_public'].map((name) => `storage.object.${name} InvalidRequest`),
  // The first bytes of an upload can meet these only if another request of the same upload comes before their end.
  ...['NoSuchUpload', 'OffsetConflict'].map((code) => `storage.tus.upload.create ${code}`),
]

interface Line {
  event?: string
  route?: string
  operation?: string
  error?: string
}

const parse = (line: string): Line => {
  try {
    return JSON.parse(line) as Line
  } catch {
    return {}
  }
}

/** Returns the errors of the table that no request of the run met, and the faults that the Worker logged. */
export function uncovered(logs: readonly string[]): string[] {
  const lines = logs.map(parse)
  const seen = new Set(lines.map(({ route, error }) => `${route} ${error}`))
  const missing = routes.flatMap((route) =>
    errorsOf(route)
      .filter((code) => !ANYWHERE.includes(code))
      .map((code) => `${route.id} ${code}`)
      .filter((pair) => !seen.has(pair) && !UNSEEN.includes(pair)),
  )
  const undeclared = lines
    .filter(({ event }) => event === 'undeclared_error')
    .map((line) => `undeclared: ${JSON.stringify(line)}`)
  const faults = lines
    .filter(({ error }) => error === 'internal_server_error')
    .map((line) => `fault: ${JSON.stringify(line)}`)
  return [...missing, ...uncoveredOfStorage(lines), ...undeclared, ...faults]
}

/** The errors of storage routes that no request of the run met, by operation: several routes may share one. */
function uncoveredOfStorage(lines: readonly Line[]): string[] {
  const seen = new Set(lines.map(({ operation, error }) => `${operation} ${error}`))
  const declared = storageRoutes.flatMap((route) =>
    storageErrorsOf(route)
      .filter((code) => !ANYWHERE_IN_STORAGE.includes(code))
      .map((code) => `${route.operation} ${code}`),
  )
  return [...new Set(declared)].filter((pair) => !seen.has(pair) && !UNSEEN_IN_STORAGE.includes(pair))
}
