import * as z from 'zod'
import { INSTANCE_SIZES } from '../../../model/tables/index.ts'
import { Text } from '../../../platform/http/common-values.ts'

/** Compute sizes that are add-ons; `nano` is the default size. */
export const COMPUTE_SIZES = INSTANCE_SIZES.filter((size) => size !== 'nano')

const ADDON_TYPES = [
  'custom_domain',
  'compute_instance',
  'pitr',
  'ipv4',
  'auth_mfa_phone',
  'auth_mfa_web_authn',
  'log_drain',
  'etl_pipeline',
] as const
const AddonType = z.enum(ADDON_TYPES).meta({ id: 'AddonType' })
export type AddonType = z.output<typeof AddonType>

/** The add-on type of each variant. */
export const TYPE_OF_VARIANT = new Map<string, AddonType>([
  ...COMPUTE_SIZES.map((size) => [`ci_${size}`, 'compute_instance'] as const),
  ['cd_default', 'custom_domain'],
  ['pitr_7', 'pitr'],
  ['pitr_14', 'pitr'],
  ['pitr_28', 'pitr'],
  ['ipv4_default', 'ipv4'],
])

const Variant = z.object({
  id: z.string(),
  name: z.string(),
  price: z.object({
    description: z.string(),
    type: z.enum(['fixed', 'usage']),
    interval: z.enum(['monthly', 'hourly']),
    amount: z.number(),
  }),
})

export const Addons = z
  .object({
    selected_addons: z.array(z.object({ type: AddonType, variant: Variant })),
    available_addons: z.array(z.object({ type: AddonType, name: z.string(), variants: z.array(Variant) })),
  })
  .meta({ id: 'Addons' })

export const ApplyAddon = z
  .object({ addon_variant: z.enum(Array.from(TYPE_OF_VARIANT.keys())), addon_type: AddonType })
  .refine(({ addon_variant, addon_type }) => TYPE_OF_VARIANT.get(addon_variant) === addon_type, {
    path: ['addon_variant'],
    error: 'must be a variant of addon_type',
  })
  .meta({ id: 'ApplyAddon' })

export const AddonVariant = Text.min(1).max(64)
