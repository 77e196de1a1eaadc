import type { Branch, Endpoint, Operation, OperationAction, Project, ProjectListItem } from '@neondatabase/api-client'

/** Complete replies, as Neon's published schemas require; fields that no client of ours reads have empty values. */

const stamp = () => new Date().toISOString()
const USAGE = {
  cpu_used_sec: 0,
  active_time_seconds: 0,
  compute_time_seconds: 0,
  written_data_bytes: 0,
  data_transfer_bytes: 0,
}
const DOMAIN = 'aws.neon.example'

export const projectShape = (of: {
  id: string
  name: string
  region_id: string
  pg_version: number
}): Project & ProjectListItem => ({
  ...of,
  ...USAGE,
  platform_id: 'aws',
  proxy_host: `${of.region_id}.${DOMAIN}`,
  branch_logical_size_limit: 0,
  branch_logical_size_limit_bytes: 0,
  store_passwords: true,
  active_time: 0,
  data_storage_bytes_hour: 0,
  provisioner: 'k8s-neonvm',
  creation_source: 'api',
  history_retention_seconds: 86_400,
  consumption_period_start: stamp(),
  consumption_period_end: stamp(),
  created_at: stamp(),
  updated_at: stamp(),
  owner_id: 'owner',
})

export const branchShape = (
  of: Pick<Branch, 'id' | 'project_id' | 'name' | 'default' | 'parent_id' | 'init_source'>,
): Branch => ({
  ...of,
  ...USAGE,
  current_state: 'ready',
  state_changed_at: stamp(),
  creation_source: 'api',
  protected: false,
  created_at: stamp(),
  updated_at: stamp(),
})

export const endpointShape = (of: {
  id: string
  project_id: string
  branch_id: string
  region_id: string
}): Endpoint => ({
  ...of,
  host: `${of.id}.${of.region_id}.${DOMAIN}`,
  proxy_host: `${of.region_id}.${DOMAIN}`,
  autoscaling_limit_min_cu: 0.25,
  autoscaling_limit_max_cu: 0.25,
  type: 'read_write' as Endpoint['type'],
  current_state: 'idle' as Endpoint['current_state'],
  pooler_enabled: false,
  pooler_mode: 'transaction' as Endpoint['pooler_mode'],
  disabled: false,
  passwordless_access: true,
  creation_source: 'api',
  created_at: stamp(),
  updated_at: stamp(),
  settings: { pg_settings: {} },
  suspend_timeout_seconds: 0,
  provisioner: 'k8s-neonvm',
})

export const operationShape = (of: {
  project_id: string
  branch_id?: string
  endpoint_id?: string
  action: `${OperationAction}`
}): Operation => ({
  ...of,
  action: of.action as OperationAction,
  id: crypto.randomUUID(),
  status: 'scheduling' as Operation['status'],
  failures_count: 0,
  created_at: stamp(),
  updated_at: stamp(),
  total_duration_ms: 0,
})
