import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ROLE_NAMES } from '../../../model/roles.ts'
import { LOGS_KEPT_DAYS } from '../../../outbound/logs/purge.ts'
import { dailyBackupDays } from '../../database/backups/backup-plan.ts'
import { hasPrivateLink } from '../../database/private-link/configurations.ts'
import { FUNCTIONS_MAX } from '../../programs/functions/function-rows.ts'
import { SOURCE_BYTES_MAX } from '../../programs/functions/schema.ts'
import { offeredVariants } from '../../projects/addons/service.ts'
import { FILE_SIZE_LIMIT_MAX } from '../../service-config/storage-config/schema.ts'
import { planIncludes } from '../organizations/plan-features.ts'
import type { Entitlements } from './schema.ts'

type Plan = OrganizationAccess['plan']
type Engine = Ctx['engine']
type Entitlement = z.input<typeof Entitlements>['entitlements'][number]

const UNLIMITED = Number.POSITIVE_INFINITY
/** A limit with its unit; UNLIMITED if there is none. */
type Amount = readonly [value: number, unit: string]
/** Access to a feature: yes or no, a limit, or a set of options. */
type Access = boolean | Amount | { set: readonly string[] }

const REALTIME = [
  ['max_concurrent_users', 'users'],
  ['max_events_per_second', 'events'],
  ['max_joins_per_second', 'joins'],
  ['max_channels_per_client', 'channels'],
  ['max_bytes_per_second', 'bytes'],
  ['max_presence_events_per_second', 'events'],
  ['max_payload_size_in_kb', 'KB'],
] as const

/** Features in the order of the published list. Settings stored for a service that does not run here give no access. */
const FEATURES: Record<
  string,
  Access | ((plan: Plan, engine: Engine, config: Ctx['config']) => Access | Promise<Access>)
> = {
  'instances.compute_update_available_sizes': async (_plan, engine) => ({
    set: (await offeredVariants(engine)).map(({ id }) => id),
  }),
  'instances.read_replicas': (_plan, { replicas }) => replicas !== undefined,
  // Clients would also offer type, IOPS and throughput, which only the host can set.
  'instances.disk_modifications': false,
  'instances.high_availability': false,
  'instances.orioledb': false,
  'replication.etl': false,
  'storage.max_file_size': [FILE_SIZE_LIMIT_MAX, 'bytes'],
  'storage.max_file_size.configurable': true,
  'storage.image_transformations': false,
  'storage.vector_buckets': false,
  'storage.iceberg_catalog': false,
  'storage.purge_cache': false,
  'security.audit_logs_days': [0, 'days'],
  'security.questionnaire': false,
  'security.soc2_report': false,
  'security.iso27001_certificate': false,
  'security.private_link': (plan, _engine, config) => planIncludes(plan, 'private_link') && hasPrivateLink(config),
  'security.enforce_mfa': false,
  'log.retention_days': [LOGS_KEPT_DAYS, 'days'],
  custom_domain: true,
  vanity_subdomain: (_plan, _engine, { PROJECT_DOMAIN }) => PROJECT_DOMAIN !== undefined,
  ipv4: false,
  'pitr.available_variants': { set: [] },
  log_drains: (plan) => planIncludes(plan, 'log_drains'),
  audit_log_drains: false,
  branching_limit: (plan) => [planIncludes(plan, 'branching') ? UNLIMITED : 0, 'branches'],
  branching_persistent: (plan) => planIncludes(plan, 'branching'),
  'auth.mfa_phone': false,
  'auth.mfa_web_authn': false,
  'auth.mfa_enhanced_security': false,
  'auth.hooks': false,
  'auth.platform.sso': false,
  'auth.custom_jwt_template': false,
  'auth.saml_2': false,
  'auth.user_sessions': false,
  'auth.leaked_password_protection': false,
  'auth.advanced_auth_settings': false,
  'auth.performance_settings': false,
  'auth.password_hibp': false,
  'auth.custom_oauth.max_providers': [0, 'providers'],
  'backup.retention_days': (plan, { capabilities }) => [capabilities.backups ? dailyBackupDays(plan) : 0, 'days'],
  'backup.restore_to_new_project': false,
  'backup.schedule': (plan, { capabilities }) => capabilities.backups && dailyBackupDays(plan) > 0,
  'function.max_count': (plan) => [FUNCTIONS_MAX[plan] ?? UNLIMITED, 'functions'],
  'function.size_limit_mb': [SOURCE_BYTES_MAX / 1024 ** 2, 'MB'],
  ...Object.fromEntries(REALTIME.map(([name, unit]) => [`realtime.${name}`, [0, unit] as const])),
  project_scoped_roles: true,
  'security.member_roles': { set: Object.values(ROLE_NAMES) },
  project_pausing: true,
  project_cloning: false,
  project_restore_after_expiry: true,
  'assistant.advance_model': false,
  'integrations.github_connections': [0, 'connections'],
  'integrations.github_push_webhooks_limit': [0, 'webhooks'],
  dedicated_pooler: false,
  'observability.dashboard_advanced_metrics': false,
  'api.members.invitations': (plan) => planIncludes(plan, 'members'),
  'api.members.roles': (plan) => planIncludes(plan, 'members'),
}

export const listEntitlements = async (
  { engine, config }: Pick<Ctx, 'engine' | 'config'>,
  { plan }: OrganizationAccess,
) => ({
  entitlements: await Promise.all(
    Object.entries(FEATURES).map(async ([key, access]) =>
      toEntitlement(key, typeof access === 'function' ? await access(plan, engine, config) : access),
    ),
  ),
})

function toEntitlement(key: string, access: Access): Entitlement {
  const { type, config } = describe(access)
  return { feature: { key, type }, hasAccess: config.enabled, type, config }
}

function describe(access: Access): Pick<Entitlement, 'type' | 'config'> {
  if (typeof access === 'boolean') return { type: 'boolean', config: { enabled: access } }
  if ('set' in access) return { type: 'set', config: { enabled: access.set.length > 0, set: [...access.set] } }
  const [value, unit] = access
  const unlimited = value === UNLIMITED
  return { type: 'numeric', config: { enabled: value > 0, value: unlimited ? 0 : value, unlimited, unit } }
}
