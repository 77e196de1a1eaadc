import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { addressIn } from '../../../platform/rate-limit/quota.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { mutate } from '../../kernel/mutate.ts'
import { throwApiError } from '../database/service.ts'
import type { LiftNetworkBans } from './schema.ts'

const BANNED_SERVICE = 'postgres'

export async function getBans({ engine }: Ctx, { ref }: ProjectAccess): Promise<{ banned_ipv4_addresses: string[] }> {
  const banned = await engine.bans?.list(ref).catch(throwApiError)
  return { banned_ipv4_addresses: banned ?? [] }
}

export async function getEnrichedBans(ctx: Ctx, project: ProjectAccess) {
  const { banned_ipv4_addresses: banned } = await getBans(ctx, project)
  return {
    banned_ipv4_addresses: banned.map((banned_address) => ({
      banned_address,
      identifier: project.ref,
      type: BANNED_SERVICE,
    })),
  }
}

export async function liftBans(
  ctx: Ctx,
  project: ProjectAccess,
  { body, headers }: { body: z.output<typeof LiftNetworkBans>; headers: Headers },
): Promise<void> {
  const { ref } = project
  const { ipv4_addresses: listed, requester_ip: includeCaller = false, identifier = ref } = body
  if (identifier !== ref) throw invalid('identifier', `must be the project's ref, ${ref}`)
  const address = includeCaller ? addressIn(ctx, headers) : undefined
  if (includeCaller && address === undefined)
    throw invalid(
      'requester_ip',
      "must be false: this installation does not know the caller's address; list it in ipv4_addresses",
    )
  const addresses = [...listed, ...(address === undefined ? [] : [address])]
  await ctx.engine.bans?.lift(ref, addresses).catch(throwApiError)
  await mutate(ctx, ({ trace }) => trace({ project, action: 'project.network_bans.lift', detail: { addresses } }))
}

const invalid = (field: string, message: string) => invalidField(`body.${field}`, message, 'refused')
