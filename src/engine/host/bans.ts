import * as z from 'zod'
import type { ProjectEngine } from '../engine.ts'
import { ignoreMissing, NoContent } from './client.ts'
import type { HostAccess } from './project-host.ts'

const Bans = z.object({ bans: z.array(z.object({ address: z.string() })) })

/** Addresses that the gateway of a project's host bans for a time after logins with wrong passwords. */
export const hostBans = (access: HostAccess): NonNullable<ProjectEngine['bans']> => ({
  async list(ref) {
    const { ask } = await access.api(ref)
    const found = await ask(Bans, { method: 'GET', path: `/instances/${ref}/bans` }).catch(ignoreMissing)
    return found?.bans.map(({ address }) => address) ?? []
  },
  async lift(ref, addresses) {
    const { ask } = await access.api(ref)
    for (const address of addresses) {
      await ask(NoContent, { method: 'DELETE', path: `/instances/${ref}/bans/${encodeURIComponent(address)}` })
    }
  },
})
