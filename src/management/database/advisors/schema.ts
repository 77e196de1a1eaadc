import * as z from 'zod'
import { REPORTED_LINTS, REQUESTABLE_LINTS } from './lints.ts'

const LINTS_MAX = 15

const Lint = z
  .object({
    name: z.enum(REPORTED_LINTS),
    title: z.string(),
    level: z.enum(['ERROR', 'WARN', 'INFO']),
    facing: z.literal('EXTERNAL'),
    categories: z.array(z.enum(['PERFORMANCE', 'SECURITY', 'HEALTH'])),
    description: z.string(),
    detail: z.string(),
    remediation: z.url(),
    metadata: z.object({
      schema: z.string().optional(),
      name: z.string().optional(),
      entity: z.string().optional(),
      type: z.enum([
        'table',
        'view',
        'materialized view',
        'foreign table',
        'auth',
        'function',
        'extension',
        'compliance',
        'health',
      ]),
      fkey_name: z.string().optional(),
      fkey_columns: z.array(z.int()).optional(),
    }),
    cache_key: z.string().meta({ description: 'Identifies the finding: stable as long as the problem persists' }),
  })
  .meta({ id: 'AdvisorLint' })
export type Lint = z.input<typeof Lint>

export const Lints = z.object({ lints: z.array(Lint) }).meta({ id: 'AdvisorLints' })

export const SecurityQuery = z.object({
  lint_type: z
    .enum(['sql'])
    .optional()
    .meta({ description: '`sql`: only lints of the database, without those of the settings' }),
})

const bodyOf = <T extends z.ZodType>(lints: T) =>
  z.object({ data: z.object({ type: z.literal('project_advisors'), attributes: z.object({ lints }) }) })

export const RunAdvisors = bodyOf(
  z
    .array(z.object({ name: z.enum(REQUESTABLE_LINTS) }))
    .min(1)
    .max(LINTS_MAX),
).meta({ id: 'RunAdvisors' })

export const AdvisorsReply = bodyOf(z.array(Lint)).meta({ id: 'AdvisorsReply' })
