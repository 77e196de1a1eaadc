import * as z from 'zod'
import { SNIPPET_VISIBILITIES } from '../../../model/tables/index.ts'
import { Name, Ref, Text, wholeNumber } from '../../../platform/http/common-values.ts'

const Visibility = z
  .enum(SNIPPET_VISIBILITIES)
  .meta({ id: 'SnippetVisibility', description: 'Who can see the snippet: user (its owner), project, org or public' })

const Person = z.object({ id: z.int(), username: z.string() }).nullable()

const listed = {
  id: z.uuid(),
  inserted_at: z.iso.datetime(),
  updated_at: z.iso.datetime(),
  type: z.literal('sql'),
  visibility: Visibility,
  name: z.string(),
  description: z.string().nullable(),
  project: z.object({ id: z.int(), name: z.string() }),
  owner: Person,
  updated_by: Person,
  favorite: z.boolean().meta({ description: 'Whether the caller marked it as a favorite' }),
}

export const SnippetList = z
  .object({ data: z.array(z.object(listed)), cursor: z.string().optional() })
  .meta({ id: 'SnippetList' })

export const Snippet = z
  .object({
    ...listed,
    content: z.object({
      favorite: z.boolean().meta({ deprecated: true }),
      schema_version: z.string(),
      sql: z.string(),
    }),
  })
  .meta({ id: 'Snippet' })

export const SnippetListQuery = z.object({
  project_ref: Ref.optional(),
  cursor: z.string().min(1).max(8_192).optional(),
  limit: wholeNumber(1, 100).default(100),
  sort_by: z.enum(['name', 'inserted_at']).default('inserted_at'),
  sort_order: z.enum(['asc', 'desc']).optional().meta({ description: 'By default, names ascend and times descend' }),
})

const SQL_LENGTH_MAX = 262_144

const writable = {
  name: Name,
  sql: Text.max(SQL_LENGTH_MAX),
  description: Text.max(1_024).nullable().optional(),
  visibility: Visibility.optional(),
  favorite: z.boolean().optional(),
}

export const CreateSnippet = z.object({ project_ref: Ref, ...writable }).meta({ id: 'CreateSnippet' })
export const UpdateSnippet = z.object(writable).partial().meta({ id: 'UpdateSnippet' })
