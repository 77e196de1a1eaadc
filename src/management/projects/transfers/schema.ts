import * as z from 'zod'
import { Slug } from '../../../platform/http/common-values.ts'

export const Transfer = z
  .object({
    data: z.object({
      type: z.literal('project_transfer_input'),
      attributes: z.object({ target_organization_slug: Slug }),
    }),
  })
  .meta({ id: 'ProjectTransfer' })

const Findings = z.array(z.object({ key: z.string(), message: z.string() }))

export const TransferPreview = z
  .object({
    data: z.object({
      type: z.literal('project_transfer_result'),
      attributes: z.object({
        valid: z.boolean(),
        warnings: Findings,
        errors: Findings.meta({ description: 'Reasons why the project cannot be transferred' }),
        info: Findings,
      }),
    }),
  })
  .meta({ id: 'ProjectTransferPreview' })
