import * as z from 'zod'
import { get } from '../../http/route.ts'
import { ApiKey, ApiKeyQuery } from './schema.ts'
import { listApiKeys } from './service.ts'

export const apiKeyRoutes = [
  get('/v1/projects/{ref}/api-keys', {
    id: 'v1-get-project-api-keys', summary: "List the keys to a project's services",
    scope: 'secrets:read', query: ApiKeyQuery, returns: z.array(ApiKey),
  }, ({ ctx, project, query: { reveal = false } }) => listApiKeys(ctx, project, reveal)),
]
