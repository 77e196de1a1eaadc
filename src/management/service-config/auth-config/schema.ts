import * as z from 'zod'
import type { Field } from './field.ts'
import { type AuthConfig, FIELD_ENTRIES, type FieldName } from './fields.ts'

const shapeOf = (entries: [FieldName, Field][], schemaOf: (field: Field) => z.ZodType) =>
  Object.fromEntries(entries.map(([name, field]) => [name, schemaOf(field)]))

/** Makes one schema for all fields that are alike in the schema they have and in what else it depends on. */
function onceFor(
  schemaOf: (field: Field) => z.ZodType,
  rest: (field: Field) => string,
  make: (field: Field) => z.ZodType,
) {
  const made = new Map<z.ZodType, Map<string, z.ZodType>>()
  return (field: Field): z.ZodType => {
    const schema = schemaOf(field)
    const alike = made.get(schema) ?? new Map<string, z.ZodType>()
    const known = alike.get(rest(field)) ?? make(field)
    made.set(schema, alike.set(rest(field), known))
    return known
  }
}

const inReply = onceFor(
  ({ told }) => told,
  ({ default: value, alwaysThere }) => JSON.stringify([value, alwaysThere]),
  ({ told, default: value, alwaysThere }) =>
    (alwaysThere ? told : told.nullable()).meta({ ...told.meta(), ...(value !== null && { default: value }) }),
)

const inUpdate = onceFor(
  ({ schema }) => schema,
  ({ notNull }) => String(notNull),
  ({ schema, notNull }) => (notNull ? schema : schema.nullable()).optional(),
)

/** A configuration that was read may be sent back whole: a field that cannot be changed is accepted as it is. */
const unchanged = onceFor(
  ({ told }) => told,
  ({ default: value }) => String(value),
  ({ told, default: value }) =>
    told
      .nullable()
      .refine((given) => given === value, `cannot be changed: must be ${value}, or left out`)
      .optional(),
)

// Shapes and types are derived from one table, which no inference can follow through its entries.
export const AuthConfigReply = z
  .object(shapeOf(FIELD_ENTRIES, inReply))
  .meta({ id: 'AuthConfig' }) as unknown as z.ZodType<AuthConfig, AuthConfig>

export type AuthConfigUpdate = { [Name in FieldName]?: AuthConfig[Name] | undefined }
export const UpdateAuthConfig = z
  .strictObject(shapeOf(FIELD_ENTRIES, (field) => (field.readOnly ? unchanged(field) : inUpdate(field))))
  .meta({ id: 'UpdateAuthConfig' }) as unknown as z.ZodType<AuthConfigUpdate, AuthConfigUpdate>
