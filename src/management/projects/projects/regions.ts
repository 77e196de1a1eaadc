import type * as z from 'zod'
import { findOrganization } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { RegionCode } from '../../../model/tables/index.ts'
import { CLOUD_PROVIDER } from './convert.ts'
import { offeredRegions, placesOf } from './creation-options.ts'
import { CONTINENT_GROUP, GROUP_NAMES, REGIONS, type SmartGroup } from './region-values.ts'
import type { RegionsQuery } from './schema.ts'

/** Those that take new projects, of the size that is asked for; a continent narrows what is recommended. */
export async function getAvailableRegions(ctx: Ctx, query: z.output<typeof RegionsQuery>) {
  await findOrganization(ctx, query.organization_slug)
  const { desired_instance_size: size } = query
  const places = (await placesOf(ctx)).filter(({ sizes }) => size === undefined || !sizes || sizes.has(size))
  const all = offeredRegions(places).map((code) => ({
    name: REGIONS[code].name,
    code,
    type: 'specific' as const,
    provider: CLOUD_PROVIDER,
  }))
  const groups = (Object.keys(GROUP_NAMES) as SmartGroup[]).filter((name) => all.some(({ code }) => isIn(name, code)))
  const wished = query.continent ? CONTINENT_GROUP[query.continent] : 'americas'
  const group = groups.includes(wished) ? wished : (groups[0] ?? wished)
  const near = all.filter(({ code }) => REGIONS[code].continent === query.continent)
  const inGroup = all.filter(({ code }) => isIn(group, code))
  return {
    recommendations: { smartGroup: toGroup(group), specific: near.length > 0 ? near : inGroup },
    all: { smartGroup: groups.map(toGroup), specific: all },
  }
}

const isIn = (group: SmartGroup, code: RegionCode): boolean => REGIONS[code].group === group

const toGroup = (code: SmartGroup) => ({ name: GROUP_NAMES[code], code, type: 'smartGroup' as const })
