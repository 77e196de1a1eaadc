import { post } from '../../http/route.ts'
import { deployFunction } from './deploy.ts'
import { DeployBody, DeployQuery, EdgeFunction } from './schema.ts'

export const functionRoutes = [
  post('/v1/projects/{ref}/functions/deploy', {
    id: 'v1-deploy-a-function', summary: 'Deploy a function; it is made where there is none',
    scope: 'edge_functions:write', query: DeployQuery, body: DeployBody, returns: EdgeFunction, status: 201,
    errors: ['bad_request.build', 'payment_required.functions', 'service_unavailable.bucket'],
  }, ({ ctx, project, query, body }) => deployFunction(ctx, project, query, body)),
]
