import * as z from 'zod'

export type Json = Record<string, unknown>
type Io = 'input' | 'output'

/** The software and the address that a published document is about. */
export interface Publication {
  /** The version of this software. */
  release: string
  baseUrl: string
}

/** Collects the schemas and error replies that the operations of a document share. `known` holds schemas that are not zod schemas. */
export function createComponents(known: Json) {
  const schemas = new Map<string, unknown>(Object.entries(known))
  /** Error replies by name. */
  const responses = new Map<string, Json>()
  return {
    schemaOf,
    parameters,
    json: (schema: z.ZodType, io: Io): Json => ({ 'application/json': { schema: schemaOf(schema, io) } }),
    shareResponse,
    toJson: (): Json => ({ responses: Object.fromEntries(responses), schemas: Object.fromEntries(schemas) }),
  }

  function shareResponse(name: string, reply: Json): Json {
    const other = responses.get(name)
    if (other && JSON.stringify(other) !== JSON.stringify(reply)) throw new Error(`two error replies are named ${name}`)
    responses.set(name, reply)
    return { $ref: `#/components/responses/${name}` }
  }

  function parameters(place: 'path' | 'query' | 'header', object: z.ZodObject | undefined): Json[] {
    const shape = (object?.shape ?? {}) as Record<string, z.ZodType>
    const { required = [] } = z.toJSONSchema(z.object(shape), { io: 'input', unrepresentable: 'any' })
    return Object.entries(shape).map(([name, schema]) => {
      const { description, deprecated } = schema.meta() ?? {}
      return {
        name,
        in: place,
        required: required.includes(name),
        ...(description && { description }),
        ...(deprecated && { deprecated }),
        schema: schemaOf(schema, 'input'),
      }
    })
  }

  /** Converts a schema and moves its named schemas, which zod puts under $defs, to the components. */
  function schemaOf(schema: z.ZodType, io: Io): unknown {
    // JSON Schema cannot express z.undefined(), which refuses a field of a request. The schema of a reply must be expressible in full.
    const unrepresentable = io === 'input' ? 'any' : 'throw'
    const generated = z.toJSONSchema(schema, { io, unrepresentable, override: (context) => tidy(context, io) })
    const text = JSON.stringify(generated).replaceAll('#/$defs/', '#/components/schemas/')
    const { $schema: _, $defs = {}, ...inline } = JSON.parse(text.replaceAll('__schema0', JSON_VALUE), leaveOutRefused)
    for (const [name, definition] of Object.entries($defs)) {
      const known = schemas.get(name)
      if (known && JSON.stringify(known) !== JSON.stringify(definition)) {
        throw new Error(`two schemas are named ${name}, or its schemas for requests and replies differ`)
      }
      schemas.set(name, definition)
    }
    return inline
  }
}

/** Name of the schema of z.json(), the only recursive schema without a name. */
const JSON_VALUE = 'JsonValue'

const REFUSED = { $comment: 'refused' }

/** Leaves fields that every request must omit out of the document. */
const leaveOutRefused = (_name: string, value: { not?: { $comment?: unknown } } | null) =>
  value?.not?.$comment === REFUSED.$comment ? undefined : value

type Override = Parameters<NonNullable<NonNullable<Parameters<typeof z.toJSONSchema>[1]>['override']>>[0]

function tidy({ zodSchema, jsonSchema }: Override, io: Io): void {
  if (zodSchema._zod.def.type === 'undefined') jsonSchema.not = REFUSED
  const flagged = patternsOf(zodSchema).find(({ flags }) => flags.includes('i'))
  if (flagged)
    throw new Error(`JSON Schema patterns have no flags: ${flagged} must match both cases without the flag i`)
  // The format is enough: the pattern has 300 characters.
  if (jsonSchema.format === 'date-time') delete jsonSchema.pattern
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum
  // Replies may gain fields later, so the document must not forbid them.
  if (io === 'output' && jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties
}

const patternsOf = ({ _zod: { def } }: Override['zodSchema']): RegExp[] =>
  (def.checks ?? []).flatMap(({ _zod: { def } }) =>
    'pattern' in def && def.pattern instanceof RegExp ? [def.pattern] : [],
  )
