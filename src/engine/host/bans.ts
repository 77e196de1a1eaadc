import * as z from 'zod'
import type { ProjectEngine } from '../engine.ts'
import { isGone, Nothing } from './client.ts'
import type { Reach } from './project-host.ts'

const Bans = z.object({ bans: z.array(z.object({ address: z.string() })) })

/** Addresses that the gateway of a project's host bans for a time after logins with wrong passwords. */
export const hostBans = (reach: Reach): NonNullable<ProjectEngine['bans']> => ({
  async of(ref) {
    const { ask } = await reach.api(ref)
    try {
      const { bans } = await ask(Bans, { method: 'GET', path: `/instances/${ref}/bans` })
      return bans.map(({ address }) => address)
    } catch (error) {
      if (isGone(error)) return []
      throw error
    }
  },
  async lift(ref, addresses) {
    const { ask } = await reach.api(ref)
    for (const address of addresses) {
      await ask(Nothing, { method: 'DELETE', path: `/instances/${ref}/bans/${encodeURIComponent(address)}` })
    }
  },
})
