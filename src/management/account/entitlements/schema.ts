import * as z from 'zod'

const Kind = z.enum(['boolean', 'numeric', 'set'])

export const Entitlements = z
  .object({
    entitlements: z.array(
      z.object({
        feature: z.object({ key: z.string(), type: Kind }),
        hasAccess: z.boolean(),
        type: Kind,
        config: z.union([
          z.object({ enabled: z.boolean(), value: z.number(), unlimited: z.boolean(), unit: z.string() }),
          z.object({ enabled: z.boolean(), set: z.array(z.string()) }),
          z.object({ enabled: z.boolean() }),
        ]),
      }),
    ),
  })
  .meta({ id: 'Entitlements' })
