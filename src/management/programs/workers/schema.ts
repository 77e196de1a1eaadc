import * as z from 'zod'
import {
  BUILD_STATES,
  SECRETS_SCOPES,
  WORKER_EXPOSURES,
  WORKER_RUNTIMES,
  WORKER_SIZES,
} from '../../../model/tables/index.ts'
import { Text } from '../../../platform/http/common-values.ts'

const INSTANCES_MAX = 16
const SECRETS_MAX = 100

/** The two names of the same resource. A reply uses the name in the path of its request. */
export const SPELLINGS = {
  workers: { type: 'project_worker', upload: 'project_worker_upload', schema: 'Worker' },
  compute: {
    type: 'project_compute_instance',
    upload: 'project_compute_instance_upload',
    schema: 'ComputeInstance',
  },
} as const
export type Spelling = keyof typeof SPELLINGS

export const WorkerName = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    'must consist of at most 63 lower-case letters, digits and hyphens, and must not start or end with a hyphen',
  )
  .meta({ description: 'Name of the worker', example: 'api' })

const oneOf = <const T extends readonly string[]>(values: T) => z.enum(values, `must be one of ${values.join(', ')}`)

const SecretsScope = z.union(
  [oneOf(SECRETS_SCOPES), z.array(z.object({ secret_name: Text.min(1).max(256) })).max(SECRETS_MAX)],
  `must be one of ${SECRETS_SCOPES.join(', ')}, or a list of up to ${SECRETS_MAX} secret names`,
)

const Spec = z.object({
  runtime: oneOf(WORKER_RUNTIMES)
    .optional()
    .meta({ description: 'Stored and shown: all programs run in the same runtime' }),
  size: oneOf(WORKER_SIZES).meta({ description: 'Stored and shown: the runtime decides on memory and processors' }),
  exposure: oneOf(WORKER_EXPOSURES).meta({ description: 'A private worker only accepts the service_role key' }),
  instances: z.int().min(0).max(INSTANCES_MAX),
  secrets_scope: SecretsScope.nullable().optional().meta({
    description:
      'The secrets in the environment: all (default), only the variables of the installation, none, or the listed ones',
  }),
})

const count = z.int().min(0)

const attributes = z.object({
  spec: Spec,
  build_state: z.enum(BUILD_STATES),
  secret_generation: z.string(),
  state_reason: z.string().optional(),
  image_version: z.string().optional().meta({ description: 'SHA-256 of the image that answers requests' }),
  deleting: z.boolean().optional(),
  instances: z.object({ declared: count, live: count, ready: count, stale: count }).optional().meta({
    description:
      'Live instances are running: ready ones with the current image and secrets, stale ones with older ones',
  }),
  instances_error: z.string().optional(),
})

const ContextUploadId = z.uuid('must be the id of an upload').toLowerCase()

/** Returns the schemas of one spelling. */
export function schemasOf(spelling: Spelling) {
  const { type, upload, schema } = SPELLINGS[spelling]
  const Worker = z
    .object({ type: z.literal(type), id: z.string().meta({ description: 'Name of the worker' }), attributes })
    .meta({ id: schema })
  return {
    Reply: z.object({ data: Worker }).meta({ id: `${schema}Reply` }),
    List: z.object({ data: z.array(Worker) }).meta({ id: `${schema}List` }),
    Upload: z
      .object({
        data: z.object({
          type: z.literal(upload),
          id: z.uuid().meta({ description: 'The context_upload_id of a deployment' }),
          attributes: z.object({ url: z.url(), method: z.literal('PUT'), expires_at: z.iso.datetime() }),
        }),
      })
      .meta({ id: `${schema}Upload` }),
    Deploy: z
      .object({
        data: z.object({
          type: z.literal(type),
          attributes: z.object({
            spec: Spec,
            context_upload_id: ContextUploadId.optional().meta({
              description: 'Default: the previous build is deployed again with this spec',
            }),
          }),
        }),
      })
      .meta({ id: `Deploy${schema}` }),
  }
}

export type Deployment = z.output<ReturnType<typeof schemasOf>['Deploy']>['data']['attributes']
export type WorkerAttributes = z.input<typeof attributes>
