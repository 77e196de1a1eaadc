import { requestError } from '../data-api-error.ts'
import type { MediaHandler, MediaHandlers } from '../schema/types.ts'

type Format = 'json' | 'object' | 'stripped-object' | 'stripped-array' | 'csv' | 'geojson' | 'plan' | 'custom'

export interface Media {
  format: Format
  contentType: string
  /** The aggregate that writes the rows in the format `custom`; undefined if the called function returns the body itself. */
  handler?: MediaHandler | undefined
  /** The options of EXPLAIN, for the format `plan`. */
  plan?: { asText: boolean; options: readonly string[] } | undefined
}

const JSON_MEDIA: Media = { format: 'json', contentType: 'application/json; charset=utf-8' }

interface Accepted {
  type: string
  parameters: ReadonlyMap<string, string>
}

/** The media types of an `Accept` header, best first. */
function acceptedTypes(header: string | null): Accepted[] {
  return (header || '*/*')
    .split(',')
    .map((part, index) => {
      const [type = '', ...rest] = splitParameters(part)
      const parameters = new Map(
        rest.map((parameter) => {
          const [name = '', value = ''] = parameter.split('=', 2)
          return [name.trim().toLowerCase(), value.trim().replace(/^"|"$/g, '')] as const
        }),
      )
      const quality = Number(parameters.get('q') ?? 1)
      return { type: type.trim().toLowerCase(), parameters, quality, index }
    })
    .sort((a, b) => b.quality - a.quality || a.index - b.index)
}

const splitParameters = (part: string): string[] => part.match(/(?:[^;"]|"[^"]*")+/g) ?? []

interface Offered {
  /** Whether PostGIS is installed, which can convert rows to GeoJSON. */
  hasGeoJson: boolean
  /** Whether callers may read query plans. */
  allowsPlans: boolean
  /** The media type that the called function returns itself. */
  custom?: string | undefined
  /** Aggregates that take the rows of the relation, and those that take any rows. */
  handlers: { own: MediaHandlers | undefined; any: MediaHandlers | undefined }
}

const utf8 = (type: string) => `${type}; charset=utf-8`

/** Chooses the form of the reply; refuses with PGRST107 if the caller accepts none. */
export function chooseMedia(header: string | null, offered: Offered): Media {
  const accepted = acceptedTypes(header)
  for (const one of accepted) {
    const media = mediaFor(one, offered)
    if (media) return media
  }
  throw notAvailable(accepted)
}

function notAvailable(accepted: readonly Accepted[]) {
  const types = accepted.map(({ type }) => type).join(', ')
  return requestError('PGRST107', { message: `None of these media types are available: ${types}` })
}

const OPENAPI = 'application/openapi+json'
const ACCEPTED_FOR_OPENAPI = [OPENAPI, 'application/json', 'application/*', '*/*']

/** The media type of the OpenAPI document; refuses with PGRST107 if the caller accepts no JSON. */
export function openApiMedia(header: string | null): Media {
  const accepted = acceptedTypes(header)
  if (accepted.some(({ type }) => ACCEPTED_FOR_OPENAPI.includes(type))) {
    return { format: 'json', contentType: utf8(OPENAPI) }
  }
  throw notAvailable(accepted)
}

function mediaFor({ type, parameters }: Accepted, offered: Offered): Media | undefined {
  const { hasGeoJson, allowsPlans, custom } = offered
  const isStripped = parameters.get('nulls') === 'stripped'
  // A function that returns `*/*` sets its media type in a header.
  if (custom === '*/*') return { format: 'custom', contentType: 'application/octet-stream' }
  if (custom === type || (custom !== undefined && type === '*/*')) {
    return { format: 'custom', contentType: withCharset(custom) }
  }
  const handled = handledMedia(type, offered)
  if (handled) return handled
  switch (type) {
    case '*/*':
    case 'application/*':
    case 'application/json':
      return JSON_MEDIA
    case 'application/vnd.pgrst.object':
    case 'application/vnd.pgrst.object+json':
      return isStripped
        ? { format: 'stripped-object', contentType: utf8('application/vnd.pgrst.object+json;nulls=stripped') }
        : { format: 'object', contentType: utf8('application/vnd.pgrst.object+json') }
    case 'application/vnd.pgrst.array':
    case 'application/vnd.pgrst.array+json':
      return isStripped
        ? { format: 'stripped-array', contentType: utf8('application/vnd.pgrst.array+json;nulls=stripped') }
        : JSON_MEDIA
    case 'text/csv':
      return { format: 'csv', contentType: utf8(type) }
    case 'application/geo+json':
      return hasGeoJson ? { format: 'geojson', contentType: utf8(type) } : undefined
    case 'application/vnd.pgrst.plan':
    case 'application/vnd.pgrst.plan+text':
    case 'application/vnd.pgrst.plan+json':
      return allowsPlans ? planMedia(type, parameters) : undefined
    default:
      return undefined
  }
}

/** A handler for all media types sets its own in a header. The media types of PostgREST itself have no handlers. */
function handledMedia(type: string, { handlers: { own, any } }: Offered): Media | undefined {
  if (type.startsWith('application/vnd.pgrst.')) return undefined
  const general = own?.get('*/*')
  const handler = general ?? own?.get(type) ?? any?.get(type)
  if (!handler) return undefined
  const isAny = handler === general || type === '*/*'
  return { format: 'custom', contentType: isAny ? 'application/octet-stream' : withCharset(type), handler }
}

const withCharset = (type: string) => (type.startsWith('text/') || type.endsWith('json') ? utf8(type) : type)

const PLAN_OPTIONS = ['analyze', 'verbose', 'settings', 'buffers', 'wal']

function planMedia(type: string, parameters: ReadonlyMap<string, string>): Media {
  const asText = type !== 'application/vnd.pgrst.plan+json'
  const options = (parameters.get('options') ?? '').split('|').filter((option) => PLAN_OPTIONS.includes(option))
  const suffix = options.length > 0 ? `; options=${options.join('|')}` : ''
  const name = `application/vnd.pgrst.plan+${asText ? 'text' : 'json'}`
  const source = parameters.get('for') ?? 'application/json'
  return { format: 'plan', contentType: `${name}; for="${source}"${suffix}; charset=utf-8`, plan: { asText, options } }
}

/** Whether the reply must have exactly one row. */
export const isSingular = ({ format }: Media): boolean => format === 'object' || format === 'stripped-object'
