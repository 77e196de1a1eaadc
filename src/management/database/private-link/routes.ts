import { del, empty, get, post } from '../../kernel/route.ts'
import { AssociationList, AssociationReply, AwsAccountId, CreateAssociation, DatabaseIdentifier } from './schema.ts'
import { createAssociation, deleteAssociation, listAssociations } from './service.ts'

const DELETION =
  'The AWS share and the association are deleted in the background. Succeeds if the association does not exist.'

export const privateLinkRoutes = [
  get('/v2/projects/{ref}/private-link/associations', {
    id: 'v2-list-private-link-associations',
    summary: 'List private link associations',
    scope: 'any caller',
    permission: 'projects:read',
    returns: AssociationList,
    handle: ({ ctx, project }) => listAssociations(ctx, project),
  }),

  post('/v2/projects/{ref}/private-link/associations', {
    id: 'v2-create-private-link-association',
    summary: 'Create a private link association',
    description:
      'Shares a database with an AWS account, which AWS RAM invites in the background. Requires the plan Team or Enterprise.',
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
    handle: ({ ctx, project, body }) => createAssociation(ctx, project, body.data.attributes),
  }),

  del('/v2/projects/{ref}/private-link/associations/aws-account/{aws_account_id}', {
    id: 'v2-delete-private-link-association',
    summary: 'Delete the private link association of the primary database',
    description: DELETION,
    scope: 'any caller',
    permission: 'projects:write',
    params: { aws_account_id: AwsAccountId },
    returns: empty,
    status: 204,
    handle: ({ ctx, project, params }) =>
      deleteAssociation(ctx, project, { awsAccountId: params.aws_account_id, databaseIdentifier: project.ref }),
  }),

  del('/v2/projects/{ref}/private-link/associations/aws-account/{aws_account_id}/database/{database_identifier}', {
    id: 'v2-delete-private-link-association-for-database',
    summary: 'Delete the private link association of a database',
    description: DELETION,
    scope: 'any caller',
    permission: 'projects:write',
    params: { aws_account_id: AwsAccountId, database_identifier: DatabaseIdentifier },
    returns: empty,
    status: 204,
    handle: ({ ctx, project, params }) =>
      deleteAssociation(ctx, project, {
        awsAccountId: params.aws_account_id,
        databaseIdentifier: params.database_identifier,
      }),
  }),
]
