import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { networkKey } from '../../../platform/net/ip-addresses.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { changeStored } from '../../projects/settings/change-settings.ts'
import { readSettings } from '../../projects/settings/read-settings.ts'
import type { Settings } from '../../projects/settings/setting-areas.ts'
import { throwSettingsFailure } from './postgres.ts'
import type { ApplyRestrictions, NetworkRestrictions, PatchedRestrictions, PatchRestrictions } from './schema.ts'

type Stored = Settings<'network'>
type Networks = Pick<Stored, 'v4' | 'v6'>

const listOf = (networks: string): string[] => networks.split(' ').filter(Boolean)
/** Joins the networks without duplicates, each in its first spelling. */
const textOf = (networks: readonly string[]): string =>
  Array.from(Map.groupBy(networks, networkKey).values(), ([first]) => first).join(' ')

/** Returns the allowed networks; null if all addresses are allowed, so that no check is needed. */
export function restrictionOf({ v4, v6 }: Networks): string[] | null {
  const isAll = [v4, v6].every((networks) => listOf(networks).some((network) => network.endsWith('/0')))
  return isAll ? null : [...listOf(v4), ...listOf(v6)]
}

const addresses = <Type extends 'v4' | 'v6'>(networks: string, type: Type) =>
  listOf(networks).map((address) => ({ address, type }))

export const toAddresses = ({ v4, v6 }: Networks) => [...addresses(v4, 'v4'), ...addresses(v6, 'v6')]

const toLists = ({ v4, v6 }: Networks) => ({ dbAllowedCidrs: listOf(v4), dbAllowedCidrsV6: listOf(v6) })

const previousNetworks = ({ old_v4: v4, old_v6: v6 }: Stored): Networks | undefined =>
  v4 === undefined || v6 === undefined ? undefined : { v4, v6 }

/** The status is always `applied`: restrictions are stored only after they were applied. */
export const stateOf = (
  { engine }: Pick<Ctx, 'engine'>,
  at: Date | undefined,
): Omit<z.input<typeof NetworkRestrictions>, 'config' | 'old_config'> => ({
  entitlement: engine.capabilities.loginNetworks ? 'allowed' : 'disallowed',
  status: 'applied',
  ...(at && { updated_at: at.toISOString(), applied_at: at.toISOString() }),
})

function toRestrictions(ctx: Ctx, stored: Stored, at: Date | undefined): z.input<typeof NetworkRestrictions> {
  const old = previousNetworks(stored)
  return { ...stateOf(ctx, at), config: toLists(stored), ...(old && { old_config: toLists(old) }) }
}

export async function getRestrictions(ctx: Ctx, { ref }: ProjectAccess) {
  const { value, updatedAt } = await readSettings(ctx.db, ref, 'network')
  return toRestrictions(ctx, value, updatedAt)
}

export async function applyRestrictions(ctx: Ctx, project: ProjectAccess, body: z.output<typeof ApplyRestrictions>) {
  const { value, updatedAt } = await restrict(ctx, project, (before) => ({
    v4: body.dbAllowedCidrs ? textOf(body.dbAllowedCidrs) : before.v4,
    v6: body.dbAllowedCidrsV6 ? textOf(body.dbAllowedCidrsV6) : before.v6,
  }))
  return toRestrictions(ctx, value, updatedAt)
}

export async function patchRestrictions(
  ctx: Ctx,
  project: ProjectAccess,
  { add = {}, remove = {} }: z.output<typeof PatchRestrictions>,
): Promise<z.input<typeof PatchedRestrictions>> {
  const changed = (before: string, more: readonly string[] = [], less: readonly string[] = []) => {
    const removed = new Set(less.map(networkKey))
    return textOf([...listOf(before), ...more].filter((network) => !removed.has(networkKey(network))))
  }
  const { value, updatedAt } = await restrict(ctx, project, ({ v4, v6 }) => ({
    v4: changed(v4, add.dbAllowedCidrs, remove.dbAllowedCidrs),
    v6: changed(v6, add.dbAllowedCidrsV6, remove.dbAllowedCidrsV6),
  }))
  const old = previousNetworks(value)
  return {
    ...stateOf(ctx, updatedAt),
    config: { dbAllowedCidrs: toAddresses(value) },
    ...(old && { old_config: { dbAllowedCidrs: toAddresses(old) } }),
  }
}

/** The maximum number of networks of both kinds, because they are stored in a comment in the catalogue. */
const NETWORKS_MAX = 200

async function restrict(ctx: Ctx, project: ProjectAccess, change: (before: Networks) => Networks) {
  checkStatus(project.status)
  const { name, capabilities, settings } = ctx.engine
  if (!capabilities.loginNetworks) {
    throw new ApiError('bad_request.driver', { detail: `the driver ${name} does not support network restrictions` })
  }
  const { ref } = project
  return changeStored(ctx, {
    project,
    area: 'network',
    async work(before) {
      const after = change(before)
      if (toAddresses(after).length > NETWORKS_MAX) throw tooMany()
      await settings.setLoginRules(ref, { networks: restrictionOf(after) }).catch(throwSettingsFailure)
      return { ...after, old_v4: before.v4, old_v6: before.v6 }
    },
  })
}

const tooMany = () => invalidField('body', `a project has at most ${NETWORKS_MAX} networks`, 'too_big')
