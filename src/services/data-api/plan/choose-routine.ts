import { requestError } from '../data-api-error.ts'
import type { Payload } from '../request/payload.ts'
import { suggest } from '../schema/suggestions.ts'
import { keyOf, type Name, type Routine, type SchemaCache } from '../schema/types.ts'

interface Call extends Name {
  argumentNames: readonly string[]
  /** The body of a POST. */
  payload: Payload | undefined
}

/** Types of the only parameter of a function that takes the whole body. */
const BODY_TYPES = {
  json: ['json', 'jsonb'],
  'text/plain': ['text'],
  'text/xml': ['xml'],
  'application/octet-stream': ['bytea'],
} as const

const bodyTypeOf = (payload: Payload) => (payload.kind === 'raw' ? payload.type : 'json')

/** Whether the function has one parameter, without a name, that takes the body as it is. */
export function takesBody({ parameters }: Routine, payload: Payload | undefined): boolean {
  const [only, ...others] = parameters
  if (!payload || !only || others.length > 0 || only.name !== '') return false
  if (payload.kind === 'json' && !payload.isJson) return false
  return BODY_TYPES[bodyTypeOf(payload)].some((type) => type === only.type)
}

/** The overload that the arguments fit. One with named parameters wins over one that takes the whole body. */
export function chooseRoutine(cache: SchemaCache, call: Call): Routine {
  const { argumentNames, payload } = call
  const overloads = cache.functions.get(keyOf(call)) ?? []
  // A function without parameters takes no other body than JSON.
  const takesAny = payload?.kind !== 'raw'
  const named = overloads.filter((one) => (takesAny || one.parameters.length > 0) && fits(one, argumentNames))
  const found = named.length > 0 ? named : overloads.filter((routine) => takesBody(routine, payload))
  const [first, second] = found
  if (!first) throw missing(cache, call, overloads)
  if (!second) return first
  const list = found.map(({ schema, name, parameters }) => {
    return `${schema}.${name}(${parameters.map((parameter) => `${parameter.name} => ${parameter.type}`).join(', ')})`
  })
  throw requestError('PGRST203', {
    message: `Could not choose the best candidate function between: ${list.join(', ')}`,
    hint: 'Try renaming the parameters or the function itself in the database so function overloading can be resolved',
  })
}

/** Whether a call with these names, which are all different, fits the function. A body may have hundreds of thousands. */
function fits({ parameters }: Routine, names: readonly string[]): boolean {
  if (names.length > parameters.length || parameters.some(({ name }) => name === '')) return false
  const known = new Set(parameters.map(({ name }) => name))
  const given = new Set(names)
  return (
    names.every((name) => known.has(name)) && parameters.every(({ name, isOptional }) => isOptional || given.has(name))
  )
}

function missing(cache: SchemaCache, { schema, name, argumentNames, payload }: Call, overloads: readonly Routine[]) {
  const isRaw = payload?.kind === 'raw'
  const list = argumentNames.join(', ')
  const withNames = argumentNames.length === 0 ? ' without parameters' : `(${list})`
  const plural = argumentNames.length > 1 ? 's' : ''
  const searched = argumentNames.length === 0 ? ' without parameters' : ` with parameter${plural} ${list}`
  const single = isRaw ? BODY_TYPES[payload.type].join('/') : 'json/jsonb'
  const details = isRaw
    ? ` with a single unnamed ${single} parameter`
    : `${searched}${payload?.kind === 'json' && payload.isJson ? ' or with a single unnamed json/jsonb parameter' : ''}`
  return requestError('PGRST202', {
    message: `Could not find the function ${schema}.${name}${isRaw ? '' : withNames} in the schema cache`,
    details: `Searched for the function ${schema}.${name}${details}, but no matches were found in the schema cache.`,
    hint: isRaw ? null : hintOf(cache, { schema, name }, argumentNames, overloads),
  })
}

function hintOf(cache: SchemaCache, { schema, name }: Name, names: readonly string[], overloads: readonly Routine[]) {
  if (overloads.length === 0) {
    const known = [...cache.functions.values()].flatMap(([one]) => (one?.schema === schema ? [one.name] : []))
    const close = suggest(known, name)
    return close === undefined ? null : `Perhaps you meant to call the function ${schema}.${close}`
  }
  if (names.length > PARAMETERS_MAX) return null
  const close = suggest(signaturesOf(overloads), signatureOf(names))
  return close === undefined ? null : `Perhaps you meant to call the function ${schema}.${name}${close}`
}

/** Postgres allows no function more parameters. */
const PARAMETERS_MAX = 100

const signatureOf = (names: readonly string[]): string => `(${names.toSorted().join(', ')})`

function* signaturesOf(overloads: readonly Routine[]): Generator<string> {
  for (const { parameters } of overloads) yield signatureOf(parameters.map(({ name }) => name))
}
