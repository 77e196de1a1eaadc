import * as z from 'zod'
import type { Field } from './field.ts'
import { type AuthConfig, FIELD_ENTRIES, type FieldName } from './fields.ts'

const shapeOf = (entries: [FieldName, Field][], schemaOf: (field: Field) => z.ZodType) =>
  Object.fromEntries(entries.map(([name, field]) => [name, schemaOf(field)]))

/** Creates one schema for all fields with the same schema and the same key. */
function memoizeByField(
  schemaOf: (field: Field) => z.ZodType,
  keyOf: (field: Field) => string,
  make: (field: Field) => z.ZodType,
) {
  const cache = new Map<z.ZodType, Map<string, z.ZodType>>()
  return (field: Field): z.ZodType => {
    const schema = schemaOf(field)
    const byKey = cache.get(schema) ?? new Map<string, z.ZodType>()
    const cached = byKey.get(keyOf(field)) ?? make(field)
    cache.set(schema, byKey.set(keyOf(field), cached))
    return cached
  }
}

const inReply = memoizeByField(
  ({ replySchema }) => replySchema,
  ({ default: value, neverNull }) => JSON.stringify([value, neverNull]),
  ({ replySchema, default: value, neverNull }) =>
    (neverNull ? replySchema : replySchema.nullable()).meta({
      ...replySchema.meta(),
      ...(value !== null && { default: value }),
    }),
)

const inUpdate = memoizeByField(
  ({ schema }) => schema,
  ({ notNull }) => String(notNull),
  ({ schema, notNull }) => (notNull ? schema : schema.nullable()).optional(),
)

/** Accepts read-only fields with their current value, so that clients can send back the whole configuration. */
const readOnlySchema = memoizeByField(
  ({ replySchema }) => replySchema,
  ({ default: value }) => String(value),
  ({ replySchema, default: value }) =>
    replySchema
      .nullable()
      .refine((input) => input === value, `is read-only: must be ${value} or omitted`)
      .optional(),
)

// Shapes and types derive from the same table, but TypeScript cannot infer types through its entries.
export const AuthConfigReply = z
  .object(shapeOf(FIELD_ENTRIES, inReply))
  .meta({ id: 'AuthConfig' }) as unknown as z.ZodType<AuthConfig, AuthConfig>

export type AuthConfigUpdate = { [Name in FieldName]?: AuthConfig[Name] | undefined }
export const UpdateAuthConfig = z
  .strictObject(shapeOf(FIELD_ENTRIES, (field) => (field.readOnly ? readOnlySchema(field) : inUpdate(field))))
  .meta({ id: 'UpdateAuthConfig' }) as unknown as z.ZodType<AuthConfigUpdate, AuthConfigUpdate>
