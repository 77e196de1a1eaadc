import * as z from 'zod'
import { Ref, wholeNumber } from '../../../platform/http/common-values.ts'
import { PageLinks, withOneCursor } from '../../../platform/http/pagination.ts'

export const ConnectionListQuery = withOneCursor(
  z.object({
    'page[size]': wholeNumber(1, 100).default(20),
    'page[after]': Ref.optional(),
    'page[before]': Ref.optional(),
    'filter[project_ref]': Ref.optional(),
  }),
)

const Connection = z
  .object({
    type: z.literal('github_connection'),
    id: z.uuid(),
    attributes: z.object({
      inserted_at: z.iso.datetime(),
      updated_at: z.iso.datetime(),
      installation_id: z.int(),
      workdir: z.string().meta({ description: 'Folder of the repository with migrations/ and seed.sql' }),
      supabase_changes_only: z.boolean(),
      branch_limit: z.int(),
      new_branch_per_pr: z.boolean(),
      project: z.object({ id: z.int(), ref: Ref, name: z.string() }),
      repository: z.object({ id: z.int(), name: z.string().meta({ description: 'owner/name' }) }),
      user: z
        .object({ id: z.int(), username: z.string(), primary_email: z.string().nullable() })
        .nullable()
        .meta({ description: 'The user who created it, if known' }),
    }),
  })
  .meta({ id: 'GithubConnection' })

export const ConnectionList = z
  .object({
    data: z.array(Connection),
    links: PageLinks,
  })
  .meta({ id: 'GithubConnectionList' })
