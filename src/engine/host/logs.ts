import * as z from 'zod'
import { isForcedRollback } from '../forced-rollback.ts'
import type { DatabaseLogs } from '../logs.ts'
import { HOST_NAMES } from './names.ts'
import type { HostAccess } from './project-host.ts'

const Ends = z.array(z.object({ name: z.string(), end: z.string() }))

const Page = z.object({
  cursor: z.string(),
  lines: z.array(z.looseObject({ timestamp: z.string(), message: z.string() }).catchall(z.string())),
  skipped_bytes: z.number(),
})

const omitEmpty = (fields: Record<string, string>) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ''))

/** The logs of the servers on the hosts. */
export function hostLogs(access: HostAccess): DatabaseLogs {
  return {
    async ends() {
      const ends = new Map<string, string>()
      const unreachable: string[] = []
      const read = async (api: Awaited<ReturnType<HostAccess['apis']>>[number]) => {
        for (const { name, end } of await api.ask(Ends, { method: 'GET', path: '/logs' })) ends.set(name, end)
      }
      const reading = (await access.apis()).map((api) => read(api).catch(() => unreachable.push(api.host.id)))
      await Promise.all(reading)
      return { ends, unreachable }
    },
    async read(ref, since, limit) {
      const { ask } = await access.api(ref)
      const query = new URLSearchParams({ limit: String(limit), ...(since !== undefined && { since }) })
      const page = await ask(Page, { method: 'GET', path: `/instances/${ref}/logs?${query}` })
      return {
        cursor: page.cursor,
        lines: page.lines
          .map(({ timestamp, message, ...fields }) => ({ timestamp, message, fields: omitEmpty(fields) }))
          .filter((line) => !isForcedRollback(line, HOST_NAMES.dataApi)),
        skippedBytes: page.skipped_bytes,
      }
    },
  }
}
