import type { RegionCode } from '../../../model/tables/index.ts'

export type SmartGroup = 'americas' | 'emea' | 'apac'
export type Continent = 'NA' | 'SA' | 'EU' | 'AF' | 'AS' | 'OC' | 'AN'

interface Region {
  name: string
  group: SmartGroup
  continent: Continent
}

export const REGIONS: Record<RegionCode, Region> = {
  'us-east-1': { name: 'East US (North Virginia)', group: 'americas', continent: 'NA' },
  'us-east-2': { name: 'East US (Ohio)', group: 'americas', continent: 'NA' },
  'us-west-1': { name: 'West US (North California)', group: 'americas', continent: 'NA' },
  'us-west-2': { name: 'West US (Oregon)', group: 'americas', continent: 'NA' },
  'ap-east-1': { name: 'East Asia (Hong Kong)', group: 'apac', continent: 'AS' },
  'ap-southeast-1': { name: 'Southeast Asia (Singapore)', group: 'apac', continent: 'AS' },
  'ap-northeast-1': { name: 'Northeast Asia (Tokyo)', group: 'apac', continent: 'AS' },
  'ap-northeast-2': { name: 'Northeast Asia (Seoul)', group: 'apac', continent: 'AS' },
  'ap-southeast-2': { name: 'Oceania (Sydney)', group: 'apac', continent: 'OC' },
  'eu-west-1': { name: 'West EU (Ireland)', group: 'emea', continent: 'EU' },
  'eu-west-2': { name: 'West Europe (London)', group: 'emea', continent: 'EU' },
  'eu-west-3': { name: 'West EU (Paris)', group: 'emea', continent: 'EU' },
  'eu-north-1': { name: 'North EU (Stockholm)', group: 'emea', continent: 'EU' },
  'eu-central-1': { name: 'Central EU (Frankfurt)', group: 'emea', continent: 'EU' },
  'eu-central-2': { name: 'Central Europe (Zurich)', group: 'emea', continent: 'EU' },
  'ca-central-1': { name: 'Canada (Central)', group: 'americas', continent: 'NA' },
  'ap-south-1': { name: 'South Asia (Mumbai)', group: 'apac', continent: 'AS' },
  'sa-east-1': { name: 'South America (São Paulo)', group: 'americas', continent: 'SA' },
}

export const isWithin = (region: RegionCode, regionOrGroup: RegionCode | SmartGroup): boolean =>
  region === regionOrGroup || REGIONS[region].group === regionOrGroup

export const DEFAULT_REGION: RegionCode = 'us-east-1'

/** Preferred region of each smart group. */
export const GROUP_REGION: Record<SmartGroup, RegionCode> = {
  americas: 'us-east-1',
  emea: 'eu-central-1',
  apac: 'ap-southeast-1',
}

export const GROUP_NAMES: Record<SmartGroup, string> = { americas: 'Americas', emea: 'Europe', apac: 'Asia-Pacific' }

export const CONTINENT_GROUP: Record<Continent, SmartGroup> = {
  NA: 'americas',
  SA: 'americas',
  EU: 'emea',
  AF: 'emea',
  AS: 'apac',
  OC: 'apac',
  AN: 'apac',
}
