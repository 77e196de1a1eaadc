import * as z from 'zod'
import { NAME_ID_FORMATS } from '../../../model/tables/index.ts'
import { isDepthAtMost, isStorable, Text } from '../../../platform/http/common-values.ts'
import { METADATA_BYTES_MAX } from './metadata.ts'

const DOMAINS_MAX = 100
const ATTRIBUTES_MAX = 100
const MAPPING_LENGTH_MAX = 16 * 1024
const DEFAULT_DEPTH_MAX = 8

const NameIdFormat = z.enum(NAME_ID_FORMATS).meta({ id: 'NameIdFormat' })

const AttributeName = Text.min(1).max(1_024)

const Default = z
  .union([z.looseObject({}), z.number(), z.string(), z.boolean()])
  // Limits the nesting, because serializing the mapping is recursive.
  .refine((value) => isDepthAtMost(value, DEFAULT_DEPTH_MAX) && isStorable(value), {
    error: `must contain only valid text and must not nest deeper than ${DEFAULT_DEPTH_MAX} levels`,
    abort: true,
  })

const Attribute = z.object({
  name: AttributeName.optional(),
  names: z.array(AttributeName).max(100).optional(),
  default: Default.optional(),
  array: z.boolean().optional(),
})

const AttributeMapping = z
  .object({ keys: z.record(Text.min(1).max(256), Attribute) })
  .refine(({ keys }) => Object.keys(keys).length <= ATTRIBUTES_MAX, {
    path: ['keys'],
    message: `must have at most ${ATTRIBUTES_MAX} attributes`,
  })
  .refine((mapping) => JSON.stringify(mapping).length <= MAPPING_LENGTH_MAX, {
    path: ['keys'],
    message: `must be at most ${MAPPING_LENGTH_MAX} characters of JSON`,
  })
  .meta({ id: 'AttributeMapping' })

const DOMAIN =
  /^(?=.{1,253}$)([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+(?!\d+$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/
const Domain = z
  .string()
  .toLowerCase()
  .regex(
    DOMAIN,
    'must be a domain such as example.com without scheme, port or wildcard; internationalized domains start with xn--',
  )

const writable = {
  metadata_xml: Text.max(METADATA_BYTES_MAX).optional(),
  metadata_url: Text.max(2_048).optional(),
  domains: z.array(Domain).max(DOMAINS_MAX).optional(),
  attribute_mapping: AttributeMapping.optional(),
  name_id_format: NameIdFormat.optional(),
}

interface Sources {
  metadata_xml?: string | undefined
  metadata_url?: string | undefined
}
const sourcesIn = ({ metadata_xml, metadata_url }: Sources): number =>
  [metadata_xml, metadata_url].filter((source) => source !== undefined).length

export const CreateProvider = z
  .object({ type: z.literal('saml'), ...writable })
  .refine((body) => sourcesIn(body) === 1, {
    path: ['metadata_xml'],
    message: 'exactly one of metadata_xml and metadata_url is required',
  })
  .meta({ id: 'CreateSsoProvider' })

export const UpdateProvider = z
  .object(writable)
  .refine((body) => sourcesIn(body) <= 1, {
    path: ['metadata_xml'],
    message: 'must be absent if metadata_url is given',
  })
  .meta({ id: 'UpdateSsoProvider' })

const times = { created_at: z.iso.datetime(), updated_at: z.iso.datetime() }

export const Provider = z
  .object({
    id: z.uuid(),
    saml: z.object({
      id: z.uuid(),
      entity_id: z.string(),
      metadata_url: z.string().optional(),
      metadata_xml: z.string().optional().meta({ description: 'Absent in lists' }),
      attribute_mapping: AttributeMapping.optional(),
      name_id_format: NameIdFormat.optional(),
      ...times,
    }),
    domains: z.array(z.object({ id: z.uuid(), domain: z.string(), ...times })),
    ...times,
  })
  .meta({ id: 'SsoProvider' })

export const ProviderList = z.object({ items: z.array(Provider) }).meta({ id: 'SsoProviderList' })
