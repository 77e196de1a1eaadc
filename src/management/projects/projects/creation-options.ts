import type * as z from 'zod'
import type { Ctx } from '../../../ctx.ts'
import type { RegionOptions } from '../../../engine/engine.ts'
import { REGION_CODES, type RegionCode } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { toApiError } from '../../database/database/service.ts'
import { DEFAULT_REGION, GROUP_REGION, REGIONS } from './region-values.ts'
import type { CreateProject } from './schema.ts'

type Wish = Pick<
  z.output<typeof CreateProject>,
  'region' | 'region_selection' | 'desired_instance_size' | 'postgres_engine' | 'release_channel'
>

export interface Options {
  region: RegionCode
  /** The major version; undefined where the driver has no choice to offer. */
  version: string | undefined
}

const CHANNEL = 'ga'

export const placesOf = ({ engine }: Pick<Ctx, 'engine'>): Promise<readonly RegionOptions[]> =>
  engine.listRegions().catch((error) => {
    throw toApiError(error)
  })

/** What a new project will be; what no place offers is refused, with the names of what there is. */
export function chooseOptions(places: readonly RegionOptions[], wish: Wish): Options {
  requireReleased(wish.release_channel)
  const near = places.filter(isNamed).filter(({ region }) => isWished(wish, region))
  if (near.length === 0) throw refuseRegion(places, wish)
  const { desired_instance_size: size, postgres_engine: engine } = wish
  const fitting = near.filter(({ sizes }) => size === undefined || !sizes || sizes.has(size))
  if (fitting.length === 0) throw refuseOption('desired_instance_size', size, sizesOf(near))
  const able = fitting.filter(({ versions }) => engine === undefined || versions.includes(engine))
  const [first] = able
  if (!first) throw refuseOption('postgres_engine', engine, versionsOf(fitting))
  const preferred = preferredRegion(wish)
  const { region, versions } = able.find((place) => place.region === preferred) ?? first
  return { region, version: engine ?? versions[0] }
}

export function requireReleased(channel: string | undefined, field = 'release_channel'): void {
  if (channel !== undefined && channel !== CHANNEL) throw refuseOption(field, channel, [CHANNEL])
}

/** `field` is below `body`. */
export function refuseOption(field: string, wished: string | undefined, offered: readonly string[]): ApiError {
  const message = `${wished} is not available on this installation: must be ${anyOf(offered)}`
  return new ApiError('bad_request.validation_failed', {
    issues: [{ field: `body.${field}`, code: 'refused', message }],
  })
}

const anyOf = (offered: readonly string[]): string =>
  offered.length === 1 ? `${offered[0]}` : `one of ${offered.join(', ')}`

function isWished({ region: code, region_selection: selection }: Wish, region: RegionCode): boolean {
  if (selection?.type === 'smartGroup') return REGIONS[region].group === selection.code
  const specific = selection?.code ?? code
  return specific === undefined || specific === region
}

function preferredRegion({ region_selection: selection }: Wish): RegionCode {
  return selection?.type === 'smartGroup' ? GROUP_REGION[selection.code] : DEFAULT_REGION
}

function refuseRegion(places: readonly RegionOptions[], { region, region_selection: selection }: Wish): ApiError {
  const offered = offeredRegions(places)
  if (!selection) return refuseOption('region', region, offered)
  const groups = [...new Set(offered.map((code) => REGIONS[code].group))]
  return refuseOption('region_selection.code', selection.code, selection.type === 'specific' ? offered : groups)
}

/** In the order of the API's list. */
export const offeredRegions = (places: readonly RegionOptions[]): RegionCode[] =>
  REGION_CODES.filter((code) => places.some(({ region }) => region === code))

const versionsOf = (places: readonly RegionOptions[]) => [...new Set(places.flatMap(({ versions }) => versions))]
const sizesOf = (places: readonly RegionOptions[]) => [...new Set(places.flatMap(({ sizes }) => [...(sizes ?? [])]))]

/** Clients know no other regions. */
const isNamed = (place: RegionOptions): place is RegionOptions & { region: RegionCode } =>
  (REGION_CODES as readonly string[]).includes(place.region)
