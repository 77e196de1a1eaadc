/** Enumerations of the public API that the tables store. */

export const PROJECT_STATUSES = [
  'INACTIVE',
  'ACTIVE_HEALTHY',
  'ACTIVE_UNHEALTHY',
  'COMING_UP',
  'UNKNOWN',
  'GOING_DOWN',
  'INIT_FAILED',
  'REMOVED',
  'RESTORING',
  'UPGRADING',
  'PAUSING',
  'RESTORE_FAILED',
  'RESTARTING',
  'PAUSE_FAILED',
  'RESIZING',
  'PROMOTING',
] as const
export type ProjectStatus = (typeof PROJECT_STATUSES)[number]

export const REGION_CODES = [
  'us-east-1',
  'us-east-2',
  'us-west-1',
  'us-west-2',
  'ap-east-1',
  'ap-southeast-1',
  'ap-northeast-1',
  'ap-northeast-2',
  'ap-southeast-2',
  'eu-west-1',
  'eu-west-2',
  'eu-west-3',
  'eu-north-1',
  'eu-central-1',
  'eu-central-2',
  'ca-central-1',
  'ap-south-1',
  'sa-east-1',
] as const
export type RegionCode = (typeof REGION_CODES)[number]

export const INSTANCE_SIZES = [
  'nano',
  'micro',
  'small',
  'medium',
  'large',
  'xlarge',
  '2xlarge',
  '4xlarge',
  '8xlarge',
  '12xlarge',
  '16xlarge',
  '24xlarge',
  '24xlarge_optimized_memory',
  '24xlarge_optimized_cpu',
  '24xlarge_high_memory',
  '48xlarge',
  '48xlarge_optimized_memory',
  '48xlarge_optimized_cpu',
  '48xlarge_high_memory',
] as const

export const RELEASE_CHANNELS = ['internal', 'alpha', 'beta', 'ga', 'withdrawn', 'preview'] as const
/** The only channel that an installation offers. */
export const RELEASE_CHANNEL = 'ga'

/** RFC 7523, 2.1. */
export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
/** Grant types that OAuth applications may be registered for (RFC 7591, 2). */
export const GRANT_TYPES = ['authorization_code', 'refresh_token', 'implicit', JWT_BEARER] as const
export type GrantType = (typeof GRANT_TYPES)[number]
