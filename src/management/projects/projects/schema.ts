import * as z from 'zod'
import { INSTANCE_SIZES, PROJECT_STATUSES, REGION_CODES, RELEASE_CHANNELS } from '../../../model/tables/index.ts'
import { DatabasePassword, Name, Ref, Slug, Text, wholeNumber } from '../../../platform/http/common-values.ts'
import { PageLinks, withOneCursor } from '../../../platform/http/pagination.ts'
import { isWithin } from './region-values.ts'

const Status = z.enum(PROJECT_STATUSES).meta({ id: 'ProjectStatus' })
const RegionCode = z.enum(REGION_CODES).meta({ id: 'RegionCode' })
const InstanceSize = z.enum(INSTANCE_SIZES).meta({ id: 'InstanceSize' })
const SmartGroup = z.enum(['americas', 'emea', 'apac'])

const identity = {
  id: z.string().meta({ description: 'Deprecated alias of ref', deprecated: true }),
  ref: Ref,
  organization_id: z.string().meta({ description: 'Deprecated alias of organization_slug', deprecated: true }),
  organization_slug: Slug,
  name: z.string(),
  region: z.string(),
  created_at: z.iso.datetime(),
  status: Status,
}

export const CreatedProject = z.object(identity).meta({ id: 'CreatedProject' })

export const Project = z
  .object({
    ...identity,
    database: z.object({
      host: z.string(),
      version: z.string(),
      postgres_engine: z.string(),
      release_channel: z.string(),
    }),
  })
  .meta({ id: 'Project' })

/** Reply of DELETE and PATCH, with the integer id. */
export const ProjectHandle = z.object({ id: z.int(), ref: Ref, name: z.string() }).meta({ id: 'ProjectHandle' })

/** A major version of Postgres, or a variant of one, such as `17-oriole`. */
export const PostgresEngine = z.string().regex(/^\d{2}(-[a-z]+)?$/, 'must be a major version of Postgres, such as 17')

export const CreateProject = z
  .object({
    name: Name,
    organization_slug: Slug,
    db_pass: DatabasePassword,
    region_selection: z
      .discriminatedUnion('type', [
        z.object({ type: z.literal('specific'), code: RegionCode }),
        z.object({ type: z.literal('smartGroup'), code: SmartGroup }),
      ])
      .optional(),
    region: RegionCode.optional().meta({ deprecated: true, description: 'Deprecated: use region_selection' }),
    desired_instance_size: InstanceSize.optional(),
    template_url: z.url().optional().meta({ description: 'Has no effect: the CLI applies the template itself' }),
    high_availability: z.literal(false, 'high availability is not supported by this installation').optional(),
    organization_id: z
      .string()
      .optional()
      .meta({ deprecated: true, description: 'Deprecated: must be the same as organization_slug' }),
    plan: z
      .enum(['free', 'pro'])
      .optional()
      .meta({ deprecated: true, description: 'Deprecated: has no effect, as the plan belongs to the organization' }),
    kps_enabled: z.boolean().optional().meta({ deprecated: true, description: 'Deprecated: has no effect' }),
    release_channel: z.enum(RELEASE_CHANNELS).optional().meta({ deprecated: true }),
    postgres_engine: PostgresEngine.optional().meta({ deprecated: true }),
  })
  .refine((body) => body.organization_id === undefined || body.organization_id === body.organization_slug, {
    path: ['organization_id'],
    message: 'must be the same as organization_slug, or left out',
  })
  .refine(({ region, region_selection: selection }) => !region || !selection || isWithin(region, selection.code), {
    path: ['region'],
    message: 'must be within region_selection, or left out',
  })
  .meta({ id: 'CreateProject' })

export const UpdateProject = z.object({ name: Name }).meta({ id: 'UpdateProject' })

const Database = z.object({
  infra_compute_size: z.string().optional(),
  region: z.string(),
  status: z.string(),
  cloud_provider: z.string(),
  identifier: z.string(),
  type: z.enum(['PRIMARY', 'READ_REPLICA']),
  disk_volume_size_gb: z.int(),
  disk_type: z.enum(['gp3', 'io2']),
  disk_throughput_mbps: z.int(),
  disk_last_modified_at: z.iso.datetime().optional(),
})

export const ProjectPage = z
  .object({
    projects: z.array(
      z.object({
        ref: Ref,
        name: z.string(),
        cloud_provider: z.string(),
        region: z.string(),
        is_branch: z.boolean(),
        status: Status,
        inserted_at: z.iso.datetime(),
        databases: z.array(Database),
      }),
    ),
    pagination: z.object({ count: z.int(), limit: z.int(), offset: z.int() }),
  })
  .meta({ id: 'ProjectPage' })

const Statuses = z.string().transform((text, check) => {
  const names = text.split(',').map((name) => name.trim())
  const statuses = names.filter(Boolean).map((name) => Status.safeParse(name))
  const known = statuses.flatMap((status) => (status.success ? [status.data] : []))
  if (statuses.length === 0) return undefined
  if (known.length < statuses.length) check.addIssue(`must be project statuses separated by commas`)
  return known
})

export const ProjectPageQuery = z.object({
  offset: wholeNumber(0, 1_000_000).default(0),
  limit: wholeNumber(1, 100).default(100),
  search: Text.max(256).optional(),
  sort: z.enum(['name_asc', 'name_desc', 'created_asc', 'created_desc']).default('name_asc'),
  statuses: Statuses.optional().meta({ description: 'Project statuses, separated by commas' }),
})

export const ProjectListQueryV2 = withOneCursor(
  z.object({
    'page[size]': wholeNumber(1, 100).default(20),
    'page[after]': z.string().min(1).optional(),
    'page[before]': z.string().min(1).optional(),
    sort: z.enum(['inserted_at', '-inserted_at']).default('inserted_at'),
    search: Text.min(1).max(256).optional(),
  }),
)

export const ProjectListV2 = z
  .object({
    data: z.array(
      z.object({
        type: z.literal('project'),
        id: Ref,
        attributes: z.object({
          name: z.string(),
          status: Status,
          cloud_provider: z.string(),
          region: z.string(),
          inserted_at: z.iso.datetime(),
          databases: z.array(Database),
        }),
      }),
    ),
    links: PageLinks,
  })
  .meta({ id: 'ProjectListV2' })

const SpecificRegion = z.object({
  name: z.string(),
  code: RegionCode,
  type: z.literal('specific'),
  provider: z.enum(['AWS', 'AWS_K8S', 'AWS_NIMBUS']),
})
const GroupRegion = z.object({ name: z.string(), code: SmartGroup, type: z.literal('smartGroup') })

export const Regions = z
  .object({
    recommendations: z.object({ smartGroup: GroupRegion, specific: z.array(SpecificRegion) }),
    all: z.object({ smartGroup: z.array(GroupRegion), specific: z.array(SpecificRegion) }),
  })
  .meta({ id: 'Regions' })

export const RegionsQuery = z.object({
  organization_slug: Slug,
  continent: z.enum(['NA', 'SA', 'EU', 'AF', 'AS', 'OC', 'AN']).optional(),
  desired_instance_size: InstanceSize.optional(),
})

/** Major versions of Postgres that clients know, oldest first. */
export const KNOWN_MAJORS = ['13', '14', '15', '17'] as const

export const RestoreVersions = z
  .object({
    available_versions: z.array(
      z.object({
        version: z.string(),
        release_channel: z.enum(RELEASE_CHANNELS),
        postgres_engine: z.enum([...KNOWN_MAJORS, '17-oriole']),
      }),
    ),
  })
  .meta({ id: 'RestoreVersions' })

const SERVICES = ['auth', 'db', 'db_postgres_user', 'pooler', 'realtime', 'rest', 'storage', 'pg_bouncer'] as const
const Service = z.enum(SERVICES)

/** Accepts `?services=db,rest` and `?services=db&services=rest`: clients send both. */
const Services = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => [value].flat().flatMap((text) => text.split(',').map((name) => name.trim())))
  .pipe(z.array(Service).min(1))

export const HEALTH_TIMEOUT_MS = 5_000

export const HealthQuery = z.object({
  services: Services.meta({ description: 'Service names, separated by commas or repeated' }),
  timeout_ms: wholeNumber(0, 10_000).default(HEALTH_TIMEOUT_MS).meta({ description: '0 means the default' }),
})

export const Health = z
  .array(
    z.object({
      name: Service,
      healthy: z.boolean().meta({ description: 'Deprecated: see status', deprecated: true }),
      status: z.enum(['COMING_UP', 'ACTIVE_HEALTHY', 'UNHEALTHY']),
      error: z.string().optional(),
    }),
  )
  .meta({ id: 'ServicesHealth' })
