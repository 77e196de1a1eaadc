import { del, empty, get, post } from '../../kernel/route.ts'
import { deployWorker } from './deploy-worker.ts'
import { type Spelling, schemasOf, WorkerName } from './schema.ts'
import { deleteWorker, getWorker, listWorkers } from './service.ts'
import { createUpload } from './uploads.ts'

const params = { name: WorkerName }

/** The published operation ids of each spelling. */
const IDS = {
  workers: {
    list: 'v2-list-all-workers',
    get: 'v2-get-a-worker',
    delete: 'v2-delete-a-worker',
    upload: 'v2-create-worker-upload',
    deploy: 'v2-deploy-a-worker',
  },
  compute: {
    list: 'v2-list-all-compute-instances',
    get: 'v2-get-a-compute-instance',
    delete: 'v2-delete-a-compute-instance',
    upload: 'v2-create-compute-instance-upload',
    deploy: 'v2-deploy-a-compute-instance',
  },
} as const

function routesOf(spelling: Spelling) {
  const { Reply, List, Upload, Deploy } = schemasOf(spelling)
  const ids = IDS[spelling]
  return [
    get(`/v2/projects/{ref}/${spelling}`, {
      id: ids.list,
      stability: 'Alpha',
      summary: 'List workers',
      scope: 'edge_functions:read',
      returns: List,
      handle: ({ ctx, project }) => listWorkers(ctx, project, spelling),
    }),

    get(`/v2/projects/{ref}/${spelling}/{name}`, {
      id: ids.get,
      stability: 'Alpha',
      summary: 'Get a worker and its instance counts',
      scope: 'edge_functions:read',
      params,
      returns: Reply,
      errors: ['not_found.worker'],
      handle: ({ ctx, project, params }) => getWorker(ctx, project, { name: params.name, spelling }),
    }),

    del(`/v2/projects/{ref}/${spelling}/{name}`, {
      id: ids.delete,
      stability: 'Alpha',
      summary: 'Delete a worker',
      description:
        'The worker stops answering at once and its name becomes available. Its instances and image are removed in the background.',
      scope: 'edge_functions:write',
      params,
      returns: empty,
      status: 204,
      errors: ['not_found.worker'],
      handle: ({ ctx, project, params }) => deleteWorker(ctx, project, params.name),
    }),

    post(`/v2/projects/{ref}/${spelling}/{name}/uploads`, {
      id: ids.upload,
      stability: 'Alpha',
      summary: 'Create an upload URL for a build context',
      description: 'PUT a .tar.gz to the URL as application/gzip, then deploy its id as `context_upload_id`.',
      scope: 'edge_functions:write',
      params,
      returns: Upload,
      status: 201,
      errors: ['conflict.project_status', 'unprocessable.too_many_uploads'],
      handle: ({ ctx, project, params }) => createUpload(ctx, project, { name: params.name, spelling }),
    }),

    post(`/v2/projects/{ref}/${spelling}/{name}/deploy`, {
      id: ids.deploy,
      stability: 'Alpha',
      summary: 'Build and deploy a worker, creating it if necessary',
      description:
        'The previous deployment keeps answering while `build_state` is `building`, and afterwards if the build fails.',
      scope: 'edge_functions:write',
      params,
      body: Deploy,
      returns: Reply,
      status: 202,
      errors: ['conflict.project_status', 'unprocessable.too_many_workers', 'service_unavailable.bucket'],
      handle: ({ ctx, project, params, body }) =>
        deployWorker(ctx, project, { name: params.name, spelling, ...body.data.attributes }),
    }),
  ]
}

export const workerRoutes = [...routesOf('workers'), ...routesOf('compute')]
