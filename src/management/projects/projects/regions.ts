import type * as z from 'zod'
import { findOrganization } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { RegionCode } from '../../../model/tables/index.ts'
import { CLOUD_PROVIDER } from './convert.ts'
import { listRegionOptions, offeredRegions } from './creation-options.ts'
import { CONTINENT_GROUP, GROUP_NAMES, REGIONS, type SmartGroup } from './region-values.ts'
import type { RegionsQuery } from './schema.ts'

/** Lists the regions that accept new projects of the requested size. A continent narrows the recommendation. */
export async function getAvailableRegions(ctx: Ctx, query: z.output<typeof RegionsQuery>) {
  await findOrganization(ctx, query.organization_slug)
  const { desired_instance_size: size } = query
  const options = (await listRegionOptions(ctx)).filter(({ sizes }) => size === undefined || !sizes || sizes.has(size))
  const all = offeredRegions(options).map((code) => ({
    name: REGIONS[code].name,
    code,
    type: 'specific' as const,
    provider: CLOUD_PROVIDER,
  }))
  const groups = (Object.keys(GROUP_NAMES) as SmartGroup[]).filter((name) => all.some(({ code }) => isIn(name, code)))
  const preferred = query.continent ? CONTINENT_GROUP[query.continent] : 'americas'
  const group = groups.includes(preferred) ? preferred : (groups[0] ?? preferred)
  const onContinent = all.filter(({ code }) => REGIONS[code].continent === query.continent)
  const inGroup = all.filter(({ code }) => isIn(group, code))
  return {
    recommendations: { smartGroup: toGroup(group), specific: onContinent.length > 0 ? onContinent : inGroup },
    all: { smartGroup: groups.map(toGroup), specific: all },
  }
}

const isIn = (group: SmartGroup, code: RegionCode): boolean => REGIONS[code].group === group

const toGroup = (code: SmartGroup) => ({ name: GROUP_NAMES[code], code, type: 'smartGroup' as const })
