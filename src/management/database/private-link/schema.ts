import * as z from 'zod'
import { ASSOCIATION_STATUSES, DATABASE_TYPES } from '../../../model/tables/index.ts'
import { Text } from '../../../platform/http/common-values.ts'

const type = z.literal('private_link_association')

export const AwsAccountId = z
  .string()
  .regex(/^\d{12}$/, 'must be an AWS account id of 12 digits')
  .meta({ description: 'Id of an AWS account', example: '123456789012' })

export const DatabaseIdentifier = Text.min(1).max(128).meta({
  description: 'The project ref for the primary database, or the identifier of a read replica',
})

const Association = z
  .object({
    type,
    id: z.uuid(),
    attributes: z.object({
      aws_account_id: z.string(),
      account_name: z.string().optional(),
      status: z.enum(ASSOCIATION_STATUSES),
      shared_at: z.iso.datetime().nullable().meta({ description: 'When the account was invited' }),
      database_type: z.enum(DATABASE_TYPES),
      database_identifier: z.string(),
      custom_dns_name: z.string().meta({ description: 'The host of the database' }),
      resource_access_manager_resource_config_id: z.string().optional(),
      resource_access_manager_resource_config_arn: z.string().optional(),
      resource_access_manager_share_arn: z.string().optional(),
    }),
  })
  .meta({ id: 'PrivateLinkAssociation' })

export const AssociationReply = z.object({ data: Association }).meta({ id: 'PrivateLinkAssociationReply' })
export const AssociationList = z.object({ data: z.array(Association) }).meta({ id: 'PrivateLinkAssociationList' })

export const CreateAssociation = z
  .object({
    data: z.object({
      type,
      attributes: z.object({
        aws_account_id: AwsAccountId,
        account_name: Text.max(128).optional(),
        database_identifier: DatabaseIdentifier.optional(),
      }),
    }),
  })
  .meta({ id: 'CreatePrivateLinkAssociation' })
