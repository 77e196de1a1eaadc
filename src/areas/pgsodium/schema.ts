import * as z from 'zod'

export const PgsodiumConfig = z
  .object({
    root_key: z.string().regex(/^[0-9a-fA-F]{64}$/, 'Expected a 32 byte secret, hex-encoded (64 characters).'),
  })
  .meta({ id: 'PgsodiumConfig' })
