import * as z from 'zod'

export const ROOT_KEY = /^[0-9a-fA-F]{64}$/

/** The service validates the key, because this error has its own message. */
export const PgsodiumConfig = z
  .object({ root_key: z.string().meta({ pattern: ROOT_KEY.source }) })
  .meta({ id: 'PgsodiumConfig' })
