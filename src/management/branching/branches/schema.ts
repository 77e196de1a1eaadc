import * as z from 'zod'
import {
  BRANCH_STATUSES,
  INSTANCE_SIZES,
  PROJECT_STATUSES,
  REGION_CODES,
  RELEASE_CHANNELS,
} from '../../../model/tables/index.ts'
import { Name, Ref, Text } from '../../../platform/http/common-values.ts'
import { SecretName } from '../../programs/secrets/schema.ts'
import { PostgresEngine } from '../../projects/projects/schema.ts'

const BranchStatus = z.enum(BRANCH_STATUSES).meta({ id: 'BranchStatus' })

const GIT_BRANCH_LENGTH_MAX = 256
const GitBranch = Text.max(GIT_BRANCH_LENGTH_MAX).meta({ description: 'Empty for none' })
const NotifyUrl = z
  .url()
  .max(2_048)
  // URL parsers drop a trailing NUL.
  .refine((text) => Text.safeParse(text).success, 'must not contain NUL characters or lone surrogates')
  .meta({
    description:
      'Receives a signed POST at each change of the branch. The signing secret is the jwt_secret of the branch',
  })

const RemovableNotifyUrl = z
  .preprocess((url) => (url === '' ? null : url), NotifyUrl.nullable())
  .meta({ description: 'Null or empty to remove it' })

const times = { created_at: z.iso.datetime(), updated_at: z.iso.datetime() }

export const Branch = z
  .object({
    id: z.uuid(),
    name: z.string(),
    project_ref: Ref,
    parent_project_ref: Ref,
    is_default: z.boolean(),
    git_branch: z.string().optional(),
    pr_number: z.int().optional().meta({ description: 'Number of the open pull request from `git_branch`' }),
    persistent: z.boolean(),
    status: BranchStatus,
    ...times,
    review_requested_at: z.iso.datetime().optional(),
    with_data: z.boolean(),
    notify_url: z.string().optional(),
    deletion_scheduled_at: z.iso.datetime().optional(),
    preview_project_status: z.enum(PROJECT_STATUSES).optional(),
  })
  .meta({ id: 'Branch' })

export const BranchConfig = z
  .object({
    ref: Ref,
    postgres_version: z.string(),
    postgres_engine: z.string(),
    release_channel: z.string(),
    status: z.enum(PROJECT_STATUSES),
    db_host: z.string(),
    db_port: z.int().positive(),
    db_user: z.string(),
    db_pass: z.string().optional().meta({ description: 'Only for roles that may read secrets' }),
    jwt_secret: z.string().optional().meta({ description: 'Only for roles that may read secrets' }),
  })
  .meta({ id: 'BranchConfig' })

const SECRETS_MAX = 100

export const CreateBranch = z
  .object({
    branch_name: Name,
    git_branch: GitBranch.optional(),
    is_default: z.boolean().optional().meta({
      description: 'The default branch is the project itself: it is always persistent and has the data of the project',
    }),
    persistent: z.boolean().optional(),
    region: z.enum(REGION_CODES).optional(),
    desired_instance_size: z.enum(['pico', ...INSTANCE_SIZES]).optional(),
    release_channel: z.enum(RELEASE_CHANNELS).optional(),
    postgres_engine: PostgresEngine.optional().meta({ description: 'Must be the version of the parent' }),
    secrets: z
      .record(SecretName, Text.max(24_576))
      .refine((secrets) => Object.keys(secrets).length <= SECRETS_MAX, `must have at most ${SECRETS_MAX} secrets`)
      .optional(),
    with_data: z.boolean().optional(),
    notify_url: NotifyUrl.optional(),
  })
  .refine(({ is_default, persistent }) => !is_default || persistent !== false, {
    error: 'must be true for the default branch',
    path: ['persistent'],
  })
  .meta({ id: 'CreateBranch' })

const DISK_GB = { min: 8, max: 61_440 }

export const CreateBranchV2 = z
  .object({
    data: z.object({
      type: z.literal('branch'),
      attributes: z.object({
        name: Name,
        git_branch: Text.min(1).max(GIT_BRANCH_LENGTH_MAX).optional(),
        region: z.enum(REGION_CODES).optional(),
        persistent: z.boolean().optional(),
        with_data: z.boolean().optional(),
        desired_instance_size: z.enum(INSTANCE_SIZES).optional(),
        desired_disk_size_gb: z.int().min(DISK_GB.min).max(DISK_GB.max).optional(),
        notify_url: NotifyUrl.optional(),
      }),
    }),
  })
  .meta({ id: 'CreateBranchV2' })

export const BranchV2 = z
  .object({
    data: z.object({
      type: z.literal('branch'),
      id: z.uuid(),
      attributes: z.object({
        name: z.string(),
        project_ref: Ref,
        parent_project_ref: Ref,
        is_default: z.boolean(),
        persistent: z.boolean(),
        with_data: z.boolean(),
        git_branch: z.string().optional(),
        notify_url: z.string().optional(),
        ...times,
      }),
    }),
  })
  .meta({ id: 'BranchV2' })

export const UpdateBranch = z
  .object({
    branch_name: Name.optional(),
    git_branch: GitBranch.optional(),
    reset_on_push: z
      .literal(false, 'a push does not reset a branch on this installation: must be false')
      .optional()
      .meta({ deprecated: true }),
    persistent: z.boolean().optional(),
    status: BranchStatus.optional(),
    request_review: z
      .boolean()
      .optional()
      .meta({ description: 'Sets or removes `review_requested_at`. Nobody is notified' }),
    notify_url: RemovableNotifyUrl.optional(),
  })
  .meta({ id: 'UpdateBranch' })

export const DeleteBranchQuery = z.object({
  force: z.stringbool().optional().meta({ description: 'With false, the branch is deleted in an hour' }),
})

const MigrationVersion = z.string().regex(/^\d{1,32}$/, 'must be digits')

export const BranchAction = z.object({ migration_version: MigrationVersion.optional() }).meta({ id: 'BranchAction' })

export const StartedRun = z.object({ workflow_run_id: z.uuid(), message: z.string() }).meta({ id: 'StartedRun' })

export const Message = z.object({ message: z.string() }).meta({ id: 'Message' })

/** Comma-separated schema names; an empty string counts as omitted. */
const Schemas = z
  .string()
  .transform((text) => (text === '' ? undefined : text.split(',').map((name) => name.trim())))
  .pipe(z.array(Text.min(1).max(63)).max(100).optional())

export const DiffQuery = z.object({
  included_schemas: Schemas.optional().meta({ description: 'Schema names, separated by commas' }),
  pgdelta: z.stringbool().optional().meta({ description: 'Accepted, without effect: there is one diff engine' }),
})

export const BranchName = Name
