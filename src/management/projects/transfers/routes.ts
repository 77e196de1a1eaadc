import { empty, post } from '../../kernel/route.ts'
import { Transfer, TransferPreview } from './schema.ts'
import { previewTransfer, transferProject } from './service.ts'

export const transferRoutes = [
  post('/v2/projects/{ref}/transfers/previews', {
    id: 'v2-preview-a-project-transfer',
    summary: 'Preview the transfer of a project',
    description:
      'Says whether the project can be transferred, and what that would change. The access token also needs the scope organizations:write.',
    scope: 'any caller',
    permission: 'projects:write',
    body: Transfer,
    returns: TransferPreview,
    errors: ['not_found.organization'],
    handle: ({ ctx, project, body }) => previewTransfer(ctx, project, body),
  }),

  post('/v2/projects/{ref}/transfers', {
    id: 'v2-transfer-a-project',
    summary: 'Transfer a project to another organization',
    description:
      'The caller must own both organizations. The access token also needs the scope organizations:write. The branches move with the project, and the transfer is complete when this request returns.',
    scope: 'any caller',
    permission: 'projects:write',
    body: Transfer,
    returns: empty,
    errors: ['not_found.organization', 'unprocessable.transfer'],
    handle: ({ ctx, project, body }) => transferProject(ctx, project, body),
  }),
]
