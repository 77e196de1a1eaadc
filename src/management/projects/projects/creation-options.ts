import type * as z from 'zod'
import type { Ctx } from '../../../ctx.ts'
import type { RegionOptions } from '../../../engine/engine.ts'
import { REGION_CODES, RELEASE_CHANNEL, type RegionCode } from '../../../model/tables/index.ts'
import type { ApiError } from '../../../platform/http/error.ts'
import { throwApiError } from '../../database/database/service.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { DEFAULT_REGION, GROUP_REGION, isWithin, REGIONS } from './region-values.ts'
import type { CreateProject } from './schema.ts'

type RequestedOptions = Pick<
  z.output<typeof CreateProject>,
  'region' | 'region_selection' | 'desired_instance_size' | 'postgres_engine' | 'release_channel'
>

export interface Options {
  region: RegionCode
  /** The major version; undefined if the driver offers no choice. */
  version: string | undefined
}

export const listRegionOptions = ({ engine }: Pick<Ctx, 'engine'>): Promise<readonly RegionOptions[]> =>
  engine.listRegions().catch(throwApiError)

/** Chooses region and version of a new project. If an option is not available, the error names those that are. */
export function chooseOptions(options: readonly RegionOptions[], requested: RequestedOptions): Options {
  requireReleaseChannel(requested.release_channel)
  const inRegion = options.filter(hasKnownRegion).filter(({ region }) => matchesRegion(requested, region))
  if (inRegion.length === 0) throw unavailableRegion(options, requested)
  const { desired_instance_size: size, postgres_engine: engine } = requested
  const withSize = inRegion.filter(({ sizes }) => size === undefined || !sizes || sizes.has(size))
  if (withSize.length === 0) throw unavailableOption('desired_instance_size', size, sizesOf(inRegion))
  const withVersion = withSize.filter(({ versions }) => engine === undefined || versions.includes(engine))
  const [first] = withVersion
  if (!first) throw unavailableOption('postgres_engine', engine, versionsOf(withSize))
  const preferred = preferredRegion(requested)
  const { region, versions } = withVersion.find((option) => option.region === preferred) ?? first
  return { region, version: engine ?? versions[0] }
}

export function requireReleaseChannel(channel: string | undefined, field = 'release_channel'): void {
  if (channel !== undefined && channel !== RELEASE_CHANNEL) throw unavailableOption(field, channel, [RELEASE_CHANNEL])
}

/** Creates the error for an unavailable option; `field` is relative to `body`. */
export function unavailableOption(field: string, value: string | undefined, offered: readonly string[]): ApiError {
  const message = `${value} is not available on this installation: must be ${listChoices(offered)}`
  return invalidField(`body.${field}`, message, 'refused')
}

const listChoices = (offered: readonly string[]): string =>
  offered.length === 1 ? `${offered[0]}` : `one of ${offered.join(', ')}`

/** A `region` within a selected group narrows it; any other contradiction has been refused. */
function matchesRegion({ region: code, region_selection: selection }: RequestedOptions, region: RegionCode): boolean {
  const requested = code ?? selection?.code
  return requested === undefined || isWithin(region, requested)
}

function preferredRegion({ region_selection: selection }: RequestedOptions): RegionCode {
  return selection?.type === 'smartGroup' ? GROUP_REGION[selection.code] : DEFAULT_REGION
}

function unavailableRegion(
  options: readonly RegionOptions[],
  { region, region_selection: selection }: RequestedOptions,
): ApiError {
  const offered = offeredRegions(options)
  if (region || !selection) return unavailableOption('region', region, offered)
  const groups = [...new Set(offered.map((code) => REGIONS[code].group))]
  return unavailableOption('region_selection.code', selection.code, selection.type === 'specific' ? offered : groups)
}

/** Returns the regions that the driver offers, in the order of the API's list. */
export const offeredRegions = (options: readonly RegionOptions[]): RegionCode[] =>
  REGION_CODES.filter((code) => options.some(({ region }) => region === code))

const versionsOf = (options: readonly RegionOptions[]) => [...new Set(options.flatMap(({ versions }) => versions))]
const sizesOf = (options: readonly RegionOptions[]) => [...new Set(options.flatMap(({ sizes }) => [...(sizes ?? [])]))]

/** Whether clients know the region. */
const hasKnownRegion = (option: RegionOptions): option is RegionOptions & { region: RegionCode } =>
  (REGION_CODES as readonly string[]).includes(option.region)
