import * as z from 'zod'
import { del, get, patch, post } from '../../kernel/route.ts'
import { getDelivery, listDeliveries, retryDelivery, sendTestEvent } from './deliveries.ts'
import { ownerOf } from './endpoint-owner.ts'
import {
  createEndpoint,
  deleteEndpoint,
  deleteEndpoints,
  getEndpoint,
  listEndpoints,
  updateEndpoint,
} from './endpoints.ts'
import {
  CreateEndpoint,
  DeliveryList,
  DeliveryListQuery,
  DeliveryReply,
  EndpointList,
  EndpointListQuery,
  EndpointReply,
  EndpointsReply,
  Ingress,
  TestEvent,
  UpdateEndpoint,
} from './schema.ts'

const params = { id: z.uuid().toLowerCase() }

/** Projects and organizations have endpoints of their own, with the same routes below their paths. */
const OWNERS = [
  { path: '/v2/projects/{ref}', prefix: 'v2-projects-ref', read: 'projects:read', write: 'projects:write' },
  {
    path: '/v2/organizations/{slug}',
    prefix: 'v2-organizations-slug',
    read: 'organizations:read',
    write: 'organizations:write',
  },
] as const

export const webhookRoutes = OWNERS.flatMap(({ path, prefix, read, write }) => [
  get(`${path}/webhooks/endpoints`, {
    id: `${prefix}-webhooks-endpoints-get`,
    summary: 'List webhook endpoints',
    scope: 'any caller',
    permission: read,
    query: EndpointListQuery,
    returns: EndpointList,
    handle: (request) => listEndpoints(request.ctx, ownerOf(request), request.query),
  }),

  post(`${path}/webhooks/endpoints`, {
    id: `${prefix}-webhooks-endpoints-post`,
    summary: 'Create a webhook endpoint',
    scope: 'any caller',
    permission: write,
    body: CreateEndpoint,
    returns: EndpointReply,
    status: 201,
    errors: ['bad_request.endpoint.too_many', 'service_unavailable.name_resolution'],
    handle: (request) => createEndpoint(request.ctx, ownerOf(request), request.body),
  }),

  del(`${path}/webhooks/endpoints`, {
    id: `${prefix}-webhooks-endpoints-delete`,
    summary: 'Delete all webhook endpoints with their deliveries',
    scope: 'any caller',
    permission: write,
    returns: EndpointsReply,
    handle: (request) => deleteEndpoints(request.ctx, ownerOf(request)),
  }),

  get(`${path}/webhooks/endpoints/{id}`, {
    id: `${prefix}-webhooks-endpoints-id-get`,
    summary: 'Get a webhook endpoint',
    scope: 'any caller',
    permission: read,
    params,
    returns: EndpointReply,
    errors: ['not_found.endpoint'],
    handle: (request) => getEndpoint(request.ctx, ownerOf(request), request.params.id),
  }),

  patch(`${path}/webhooks/endpoints/{id}`, {
    id: `${prefix}-webhooks-endpoints-id-patch`,
    summary: 'Update a webhook endpoint',
    description:
      'A new signing secret applies at once. The previous one also signs for `WEBHOOK_ROTATION_HOURS` (24 by default).',
    scope: 'any caller',
    permission: write,
    params,
    body: UpdateEndpoint,
    returns: EndpointReply,
    errors: ['not_found.endpoint', 'service_unavailable.name_resolution'],
    handle: (request) => updateEndpoint(request.ctx, ownerOf(request), request.params.id, request.body),
  }),

  del(`${path}/webhooks/endpoints/{id}`, {
    id: `${prefix}-webhooks-endpoints-id-delete`,
    summary: 'Delete a webhook endpoint with its deliveries',
    scope: 'any caller',
    permission: write,
    params,
    returns: EndpointReply,
    errors: ['not_found.endpoint'],
    handle: (request) => deleteEndpoint(request.ctx, ownerOf(request), request.params.id),
  }),

  get(`${path}/webhooks/endpoints/{id}/deliveries`, {
    id: `${prefix}-webhooks-endpoints-id-deliveries-get`,
    summary: 'List deliveries of an endpoint, newest first',
    description: 'Each attempt is a delivery. Deliveries are kept for 14 days.',
    scope: 'any caller',
    permission: read,
    params,
    query: DeliveryListQuery,
    returns: DeliveryList,
    errors: ['not_found.endpoint'],
    handle: (request) => listDeliveries(request.ctx, ownerOf(request), request.params.id, request.query),
  }),

  post(`${path}/webhooks/endpoints/{id}/test`, {
    id: `${prefix}-webhooks-endpoints-id-test-post`,
    summary: 'Send a test event to an endpoint',
    description: 'The payload contains `is_test: true`. The event is sent once, without retries.',
    scope: 'any caller',
    permission: write,
    params,
    body: TestEvent,
    returns: Ingress,
    status: 201,
    limit: 'webhookTest',
    errors: ['not_found.endpoint', 'bad_request.endpoint.test.disabled', 'bad_request.endpoint.test.wrong_event_type'],
    handle: (request) => sendTestEvent(request.ctx, ownerOf(request), request.params.id, request.body),
  }),

  get(`${path}/webhooks/deliveries/{id}`, {
    id: `${prefix}-webhooks-deliveries-id-get`,
    summary: 'Get a delivery with its event',
    scope: 'any caller',
    permission: read,
    params,
    returns: DeliveryReply,
    errors: ['not_found.delivery'],
    handle: (request) => getDelivery(request.ctx, ownerOf(request), request.params.id),
  }),

  post(`${path}/webhooks/deliveries/{id}/retry`, {
    id: `${prefix}-webhooks-deliveries-id-retry-post`,
    summary: 'Retry a delivery',
    description: 'Makes one attempt at once. A pending attempt is moved forward instead.',
    scope: 'any caller',
    permission: write,
    params,
    returns: Ingress,
    status: 201,
    limit: 'webhookRetry',
    errors: ['not_found.delivery', 'bad_request.endpoint.test.disabled'],
    handle: (request) => retryDelivery(request.ctx, ownerOf(request), request.params.id),
  }),
])
