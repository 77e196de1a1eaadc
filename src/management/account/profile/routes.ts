import * as z from 'zod'
import { get } from '../../kernel/route.ts'

const Profile = z
  .object({ gotrue_id: z.string(), primary_email: z.string(), username: z.string() })
  .meta({ id: 'Profile' })

export const profileRoutes = [
  get('/v1/profile', {
    id: 'v1-get-profile', summary: 'Get the profile of the caller',
    scope: 'any caller', returns: Profile,
  }, async ({ ctx: { principal } }) => ({
    gotrue_id: principal.userId, primary_email: principal.primaryEmail, username: principal.username,
  })),
]
