import { expect } from 'vitest'
import type { Caller, TestOrganization } from './api.ts'

export const claimTokenPath = (ref: string) => `/v1/projects/${ref}/claim-token`
export const claimPath = ({ slug }: { slug: string }, token: string) =>
  `/v1/organizations/${slug}/project-claim/${token}`

/** Makes a token with which the project can be claimed for a day. */
export async function newClaimToken(caller: Caller, ref: string): Promise<string> {
  const reply = await caller.post(claimTokenPath(ref))
  expect(reply).toMatchObject({ status: 200 })
  return reply.body.token
}

export const claim = (target: TestOrganization, token: string, by: Caller = target.owner) =>
  by.post(claimPath(target, token))

export const NO_CLAIM = {
  message: 'Project claim not found: the token is unknown, used, expired or revoked',
}
