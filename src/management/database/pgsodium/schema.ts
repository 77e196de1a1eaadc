import * as z from 'zod'

export const ROOT_KEY = /^[0-9a-fA-F]{64}$/

/** Whether it is a key is for the service to say, in words of its own. */
export const PgsodiumConfig = z
  .object({ root_key: z.string().meta({ pattern: ROOT_KEY.source }) })
  .meta({ id: 'PgsodiumConfig' })
