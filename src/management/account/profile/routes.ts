import * as z from 'zod'
import { get } from '../../kernel/route.ts'

const Profile = z
  .object({ gotrue_id: z.string(), primary_email: z.string(), username: z.string() })
  .meta({ id: 'Profile' })

export const profileRoutes = [
  get('/v1/profile', {
    id: 'v1-get-profile',
    summary: 'Get the profile of the caller',
    scope: 'any caller',
    returns: Profile,
    handle: async ({ ctx: { actor } }) => ({
      gotrue_id: actor.userId,
      primary_email: actor.primaryEmail,
      username: actor.username,
    }),
  }),
]
