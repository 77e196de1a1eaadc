import type * as z from 'zod'
import { findOrganization } from '../../auth/access.ts'
import { REGION_CODES } from '../../db/schema/index.ts'
import type { Ctx } from '../../env.ts'
import { CLOUD_PROVIDER } from './convert.ts'
import type { RegionsQuery } from './schema.ts'
import { CONTINENT_GROUP, GROUP_NAMES, REGIONS, type SmartGroup } from './values.ts'

/** Every region serves every size; a continent narrows what is recommended. */
export async function getAvailableRegions(ctx: Ctx, query: z.output<typeof RegionsQuery>) {
  await findOrganization(ctx, query.organization_slug)
  const { regions } = ctx.engine
  const offered = REGION_CODES.filter((code) => regions?.has(code) ?? true)
  const all = offered.map((code) => ({
    name: REGIONS[code].name,
    code,
    type: 'specific' as const,
    provider: CLOUD_PROVIDER,
  }))
  const group = query.continent ? CONTINENT_GROUP[query.continent] : 'americas'
  const near = all.filter(({ code }) => REGIONS[code].continent === query.continent)
  const inGroup = all.filter(({ code }) => REGIONS[code].group === group)
  return {
    recommendations: { smartGroup: toGroup(group), specific: near.length > 0 ? near : inGroup },
    all: { smartGroup: (Object.keys(GROUP_NAMES) as SmartGroup[]).map(toGroup), specific: all },
  }
}

const toGroup = (code: SmartGroup) => ({ name: GROUP_NAMES[code], code, type: 'smartGroup' as const })
