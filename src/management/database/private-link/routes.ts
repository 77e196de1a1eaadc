import { del, empty, get, post } from '../../kernel/route.ts'
import { AssociationList, AssociationReply, AwsAccountId, CreateAssociation, DatabaseIdentifier } from './schema.ts'
import { createAssociation, deleteAssociation, listAssociations } from './service.ts'

const ENDED =
  'The share at AWS is deleted in the background, and its row with it. One that is not there has been deleted.'

export const privateLinkRoutes = [
  get(
    '/v2/projects/{ref}/private-link/associations',
    {
      id: 'v2-list-private-link-associations',
      summary: 'List the AWS accounts that a project is shared with',
      scope: 'any caller',
      permission: 'projects:read',
      returns: AssociationList,
    },
    ({ ctx, project }) => listAssociations(ctx, project),
  ),

  post(
    '/v2/projects/{ref}/private-link/associations',
    {
      id: 'v2-create-private-link-association',
      summary: 'Share a database with an AWS account',
      description: 'The account is invited by AWS RAM in the background. Plans Team and Enterprise.',
      scope: 'any caller',
      permission: 'projects:write',
      body: CreateAssociation,
      returns: AssociationReply,
      status: 201,
      errors: [
        'bad_request.private_link',
        'payment_required.private_link',
        'conflict.private_link_association',
        'unprocessable.too_many_private_links',
      ],
    },
    ({ ctx, project, body }) => createAssociation(ctx, project, body.data.attributes),
  ),

  del(
    '/v2/projects/{ref}/private-link/associations/aws-account/{aws_account_id}',
    {
      id: 'v2-delete-private-link-association',
      summary: 'Share the primary database with an AWS account no more',
      description: ENDED,
      scope: 'any caller',
      permission: 'projects:write',
      params: { aws_account_id: AwsAccountId },
      returns: empty,
      status: 204,
    },
    ({ ctx, project, params }) =>
      deleteAssociation(ctx, project, { accountId: params.aws_account_id, identifier: project.ref }),
  ),

  del(
    '/v2/projects/{ref}/private-link/associations/aws-account/{aws_account_id}/database/{database_identifier}',
    {
      id: 'v2-delete-private-link-association-for-database',
      summary: 'Share a database with an AWS account no more',
      description: ENDED,
      scope: 'any caller',
      permission: 'projects:write',
      params: { aws_account_id: AwsAccountId, database_identifier: DatabaseIdentifier },
      returns: empty,
      status: 204,
    },
    ({ ctx, project, params }) =>
      deleteAssociation(ctx, project, { accountId: params.aws_account_id, identifier: params.database_identifier }),
  ),
]
