import * as z from 'zod'
import { del, get, patch, post } from '../../kernel/route.ts'
import { getDelivery, listDeliveries, retryDelivery, sendTestEvent } from './deliveries.ts'
import { ofOrganization, ofProject } from './endpoint-owner.ts'
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

const id = z.uuid().toLowerCase()

/** Route options shared by the endpoints of projects and of organizations. */
const LIST = {
  summary: 'List webhook endpoints',
  scope: 'any caller',
  query: EndpointListQuery,
  returns: EndpointList,
} as const
const CREATE = {
  summary: 'Create a webhook endpoint',
  scope: 'any caller',
  body: CreateEndpoint,
  returns: EndpointReply,
  status: 201,
  errors: ['bad_request.endpoint.too_many', 'service_unavailable.name_resolution'],
} as const
const DELETE_ALL = {
  summary: 'Delete all webhook endpoints with their deliveries',
  scope: 'any caller',
  returns: EndpointsReply,
} as const
const GET = {
  summary: 'Get a webhook endpoint',
  scope: 'any caller',
  params: { id },
  returns: EndpointReply,
  errors: ['not_found.endpoint'],
} as const
const UPDATE = {
  summary: 'Update a webhook endpoint',
  description:
    'A new signing secret applies at once. The previous one also signs for `WEBHOOK_ROTATION_HOURS` (24 by default).',
  scope: 'any caller',
  params: { id },
  body: UpdateEndpoint,
  returns: EndpointReply,
  errors: ['not_found.endpoint', 'service_unavailable.name_resolution'],
} as const
const DELETE = {
  summary: 'Delete a webhook endpoint with its deliveries',
  scope: 'any caller',
  params: { id },
  returns: EndpointReply,
  errors: ['not_found.endpoint'],
} as const
const DELIVERIES = {
  summary: 'List deliveries of an endpoint, newest first',
  description: 'Each attempt is a delivery. Deliveries are kept for 14 days.',
  scope: 'any caller',
  params: { id },
  query: DeliveryListQuery,
  returns: DeliveryList,
  errors: ['not_found.endpoint'],
} as const
const TEST = {
  summary: 'Send a test event to an endpoint',
  description: 'The payload contains `is_test: true`. The event is sent once, without retries.',
  scope: 'any caller',
  params: { id },
  body: TestEvent,
  returns: Ingress,
  status: 201,
  limit: 'webhookTest',
  errors: ['not_found.endpoint', 'bad_request.endpoint.test.disabled', 'bad_request.endpoint.test.wrong_event_type'],
} as const
const DELIVERY = {
  summary: 'Get a delivery with its event',
  scope: 'any caller',
  params: { id },
  returns: DeliveryReply,
  errors: ['not_found.delivery'],
} as const
const RETRY = {
  summary: 'Retry a delivery',
  description: 'Makes one attempt at once. A pending attempt is moved forward instead.',
  scope: 'any caller',
  params: { id },
  returns: Ingress,
  status: 201,
  limit: 'webhookRetry',
  errors: ['not_found.delivery', 'bad_request.endpoint.test.disabled'],
} as const

export const webhookRoutes = [
  get(
    '/v2/projects/{ref}/webhooks/endpoints',
    {
      id: 'v2-projects-ref-webhooks-endpoints-get',
      ...LIST,
      permission: 'projects:read',
    },
    ({ ctx, project, query }) => listEndpoints(ctx, ofProject(ctx, project), query),
  ),

  post(
    '/v2/projects/{ref}/webhooks/endpoints',
    {
      id: 'v2-projects-ref-webhooks-endpoints-post',
      ...CREATE,
      permission: 'projects:write',
    },
    ({ ctx, project, body }) => createEndpoint(ctx, ofProject(ctx, project), body),
  ),

  del(
    '/v2/projects/{ref}/webhooks/endpoints',
    {
      id: 'v2-projects-ref-webhooks-endpoints-delete',
      ...DELETE_ALL,
      permission: 'projects:write',
    },
    ({ ctx, project }) => deleteEndpoints(ctx, ofProject(ctx, project)),
  ),

  get(
    '/v2/projects/{ref}/webhooks/endpoints/{id}',
    {
      id: 'v2-projects-ref-webhooks-endpoints-id-get',
      ...GET,
      permission: 'projects:read',
    },
    ({ ctx, project, params }) => getEndpoint(ctx, ofProject(ctx, project), params.id),
  ),

  patch(
    '/v2/projects/{ref}/webhooks/endpoints/{id}',
    {
      id: 'v2-projects-ref-webhooks-endpoints-id-patch',
      ...UPDATE,
      permission: 'projects:write',
    },
    ({ ctx, project, params, body }) => updateEndpoint(ctx, ofProject(ctx, project), params.id, body),
  ),

  del(
    '/v2/projects/{ref}/webhooks/endpoints/{id}',
    {
      id: 'v2-projects-ref-webhooks-endpoints-id-delete',
      ...DELETE,
      permission: 'projects:write',
    },
    ({ ctx, project, params }) => deleteEndpoint(ctx, ofProject(ctx, project), params.id),
  ),

  get(
    '/v2/projects/{ref}/webhooks/endpoints/{id}/deliveries',
    {
      id: 'v2-projects-ref-webhooks-endpoints-id-deliveries-get',
      ...DELIVERIES,
      permission: 'projects:read',
    },
    ({ ctx, project, params, query }) => listDeliveries(ctx, ofProject(ctx, project), params.id, query),
  ),

  post(
    '/v2/projects/{ref}/webhooks/endpoints/{id}/test',
    {
      id: 'v2-projects-ref-webhooks-endpoints-id-test-post',
      ...TEST,
      permission: 'projects:write',
    },
    ({ ctx, project, params, body }) => sendTestEvent(ctx, ofProject(ctx, project), params.id, body),
  ),

  get(
    '/v2/projects/{ref}/webhooks/deliveries/{id}',
    {
      id: 'v2-projects-ref-webhooks-deliveries-id-get',
      ...DELIVERY,
      permission: 'projects:read',
    },
    ({ ctx, project, params }) => getDelivery(ctx, ofProject(ctx, project), params.id),
  ),

  post(
    '/v2/projects/{ref}/webhooks/deliveries/{id}/retry',
    {
      id: 'v2-projects-ref-webhooks-deliveries-id-retry-post',
      ...RETRY,
      permission: 'projects:write',
    },
    ({ ctx, project, params }) => retryDelivery(ctx, ofProject(ctx, project), params.id),
  ),

  get(
    '/v2/organizations/{slug}/webhooks/endpoints',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-get',
      ...LIST,
      permission: 'organizations:read',
    },
    ({ ctx, organization, query }) => listEndpoints(ctx, ofOrganization(ctx, organization), query),
  ),

  post(
    '/v2/organizations/{slug}/webhooks/endpoints',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-post',
      ...CREATE,
      permission: 'organizations:write',
    },
    ({ ctx, organization, body }) => createEndpoint(ctx, ofOrganization(ctx, organization), body),
  ),

  del(
    '/v2/organizations/{slug}/webhooks/endpoints',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-delete',
      ...DELETE_ALL,
      permission: 'organizations:write',
    },
    ({ ctx, organization }) => deleteEndpoints(ctx, ofOrganization(ctx, organization)),
  ),

  get(
    '/v2/organizations/{slug}/webhooks/endpoints/{id}',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-id-get',
      ...GET,
      permission: 'organizations:read',
    },
    ({ ctx, organization, params }) => getEndpoint(ctx, ofOrganization(ctx, organization), params.id),
  ),

  patch(
    '/v2/organizations/{slug}/webhooks/endpoints/{id}',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-id-patch',
      ...UPDATE,
      permission: 'organizations:write',
    },
    ({ ctx, organization, params, body }) => updateEndpoint(ctx, ofOrganization(ctx, organization), params.id, body),
  ),

  del(
    '/v2/organizations/{slug}/webhooks/endpoints/{id}',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-id-delete',
      ...DELETE,
      permission: 'organizations:write',
    },
    ({ ctx, organization, params }) => deleteEndpoint(ctx, ofOrganization(ctx, organization), params.id),
  ),

  get(
    '/v2/organizations/{slug}/webhooks/endpoints/{id}/deliveries',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-id-deliveries-get',
      ...DELIVERIES,
      permission: 'organizations:read',
    },
    ({ ctx, organization, params, query }) => listDeliveries(ctx, ofOrganization(ctx, organization), params.id, query),
  ),

  post(
    '/v2/organizations/{slug}/webhooks/endpoints/{id}/test',
    {
      id: 'v2-organizations-slug-webhooks-endpoints-id-test-post',
      ...TEST,
      permission: 'organizations:write',
    },
    ({ ctx, organization, params, body }) => sendTestEvent(ctx, ofOrganization(ctx, organization), params.id, body),
  ),

  get(
    '/v2/organizations/{slug}/webhooks/deliveries/{id}',
    {
      id: 'v2-organizations-slug-webhooks-deliveries-id-get',
      ...DELIVERY,
      permission: 'organizations:read',
    },
    ({ ctx, organization, params }) => getDelivery(ctx, ofOrganization(ctx, organization), params.id),
  ),

  post(
    '/v2/organizations/{slug}/webhooks/deliveries/{id}/retry',
    {
      id: 'v2-organizations-slug-webhooks-deliveries-id-retry-post',
      ...RETRY,
      permission: 'organizations:write',
    },
    ({ ctx, organization, params }) => retryDelivery(ctx, ofOrganization(ctx, organization), params.id),
  ),
]
