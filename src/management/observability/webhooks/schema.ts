import * as z from 'zod'
import { EVENT_TYPE_SPELLINGS, EVENT_TYPES } from '../../../model/event-types.ts'
import { DELIVERY_STATUSES } from '../../../model/tables/index.ts'
import { headerProblem } from '../../../outbound/webhooks/delivery-headers.ts'
import { SECRET_RULES, secretProblem } from '../../../outbound/webhooks/signature.ts'
import { HttpUrl, Ref, Slug, Text, wholeNumber } from '../../../platform/http/common-values.ts'
import { withOneCursor } from '../../../platform/http/pagination.ts'
import { URL_LENGTH_MAX } from '../../../platform/net/destination.ts'

const EVENT_TYPES_MAX = EVENT_TYPES.length + 1

const EventType = z.enum(EVENT_TYPES).meta({ id: 'WebhookEventType' })
const Subscription = z.enum([...EVENT_TYPES, '*']).meta({ id: 'WebhookSubscription' })

/** Turns a function that describes a problem into a zod check. */
const checkWith = <T>(problemOf: (value: T) => string | undefined) =>
  z.superRefine<T>((value, check) => {
    const problem = problemOf(value)
    if (problem) check.addIssue(problem)
  })

/** A JSON object of strings. The check is written by hand because z.record() drops the key `__proto__`. */
const Strings = z
  .unknown()
  .superRefine((value, check) => {
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    if (!isObject) return check.addIssue({ code: 'invalid_type', expected: 'record', input: value, continue: false })
    for (const [name, input] of Object.entries(value)) {
      if (typeof input === 'string') continue
      check.addIssue({ code: 'invalid_type', expected: 'string', input, path: [name], continue: false })
    }
  })
  .meta({
    type: 'object',
    propertyNames: { type: 'string' },
    additionalProperties: { type: 'string' },
  }) as unknown as z.ZodType<Record<string, string>>

const attributes = {
  url: HttpUrl.max(URL_LENGTH_MAX).meta({
    format: 'uri',
    description: 'An http or https URL whose host is a public domain that does not resolve to a reserved address',
  }),
  enabled: z.boolean(),
  description: Text.refine((text) => Array.from(text).length <= 512, 'must be at most 512 characters')
    .nullable()
    .meta({ maxLength: 512 }),
  event_types: z
    .array(z.object({ type: Subscription }))
    .min(1)
    .max(EVENT_TYPES_MAX),
  custom_headers: Strings.check(
    checkWith((headers) => {
      const found = headerProblem(headers)
      return found && `${found.name}: ${found.problem}`
    }),
  ).nullable(),
  signing_secret: z
    .string()
    .check(checkWith(secretProblem))
    .meta({
      ...SECRET_RULES,
      description: '`whsec_` followed by base64 is decoded to bytes; any other text is used as it is',
    }),
}

const bodyOf = <T extends z.ZodType>(attributes: T) =>
  z.object({ data: z.object({ type: z.literal('endpoint'), attributes }) })

export const CreateEndpoint = bodyOf(
  z.object({
    ...attributes,
    enabled: attributes.enabled.default(true),
    description: attributes.description.optional(),
    custom_headers: attributes.custom_headers.optional(),
  }),
).meta({ id: 'CreateWebhookEndpoint' })

export const UpdateEndpoint = bodyOf(z.object(attributes).partial()).meta({ id: 'UpdateWebhookEndpoint' })

const Endpoint = z
  .object({
    type: z.literal('endpoint'),
    id: z.uuid(),
    attributes: z.object({
      id: z.uuid(),
      url: z.string(),
      enabled: z.boolean(),
      description: z.string().nullable(),
      event_types: z.array(z.object({ type: Subscription })),
      custom_headers: z.record(z.string(), z.string()).nullable().optional(),
      created_by: z.uuid(),
      created_at: z.iso.datetime(),
    }),
  })
  .meta({ id: 'WebhookEndpoint' })

const Links = z
  .object({
    first: z.string().nullable().optional(),
    last: z.string().nullable().optional(),
    prev: z.string().nullable(),
    next: z.string().nullable(),
  })
  .meta({ id: 'WebhookLinks' })

export const EndpointReply = z.object({ data: Endpoint }).meta({ id: 'WebhookEndpointReply' })
export const EndpointsReply = z.object({ data: z.array(Endpoint) }).meta({ id: 'WebhookEndpointsReply' })
export const EndpointList = z.object({ data: z.array(Endpoint), links: Links }).meta({ id: 'WebhookEndpointList' })

const PAGE_SIZE_MAX = 100
/** A larger size is reduced, because the specification has no upper limit for it. */
const PageSize = wholeNumber(1, Number.MAX_SAFE_INTEGER)
  .transform((size) => Math.min(size, PAGE_SIZE_MAX))
  .meta({ type: 'integer', minimum: 1, description: `A page has at most ${PAGE_SIZE_MAX}` })
  .default(20)

export const EndpointListQuery = z.object({
  'page[offset]': wholeNumber(0, 1_000_000).default(0),
  'page[limit]': PageSize,
})

const Delivery = z
  .object({
    type: z.literal('delivery'),
    id: z.uuid(),
    attributes: z.object({
      id: z.uuid(),
      event_id: z.uuid().meta({ description: 'The webhook-id header of every attempt of this event to this endpoint' }),
      status: z.enum(DELIVERY_STATUSES),
      response_code: z.int().meta({ description: '0 if there was no response' }),
      response_headers: Strings.nullable(),
      response_body: z.union([Strings, z.string()]).nullable(),
      error_code: z.string().nullable(),
      error_message: z.string().nullable(),
      attempt_timestamp: z.iso.datetime().meta({
        description:
          'The time of the attempt. If pending: when it is due. If skipped: when it was skipped or, if earlier, due',
      }),
      event: z.object({
        type: EventType,
        payload: z.looseObject({ organization_slug: Slug, project_ref: Ref.nullable() }),
        timestamp: z.iso.datetime(),
      }),
    }),
  })
  .meta({ id: 'WebhookDelivery' })

export const DeliveryReply = z.object({ data: Delivery }).meta({ id: 'WebhookDeliveryReply' })
export const DeliveryList = z.object({ data: z.array(Delivery), links: Links }).meta({ id: 'WebhookDeliveryList' })

export const DeliveryListQuery = withOneCursor(
  z.object({
    'page[size]': PageSize,
    'page[after]': z.uuid().optional(),
    'page[before]': z.uuid().optional(),
  }),
)

/** Strict, because ignoring a misplaced field would send an event of the wrong type. */
export const TestEvent = z
  .strictObject({
    data: z
      .strictObject({
        type: z.literal('event'),
        attributes: z.strictObject({ type: z.enum(EVENT_TYPE_SPELLINGS).optional() }).optional(),
      })
      .optional(),
  })
  .meta({ id: 'WebhookTestEvent', description: 'Default: an event of a subscribed type' })
  .optional()

export const Ingress = z
  .object({
    data: z.object({
      type: z.literal('ingress'),
      id: z.string().meta({ description: 'The event_id of the delivery' }),
    }),
  })
  .meta({ id: 'WebhookIngress' })
