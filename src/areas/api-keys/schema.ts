import * as z from 'zod'

export const ApiKeyQuery = z.object({
  reveal: z
    .stringbool()
    .optional()
    .meta({ description: 'Whether secret keys are shown; else only what they are recognized by' }),
})

export const ApiKey = z
  .object({
    name: z.string(),
    api_key: z.string().meta({ description: 'A secret key ends in dots where it is not revealed' }),
    id: z.string(),
    type: z.enum(['legacy', 'publishable', 'secret']),
    prefix: z.string(),
    hash: z.string().meta({ description: 'SHA-256 of the key in base64url' }),
    description: z.string(),
  })
  .meta({ id: 'ApiKey' })
