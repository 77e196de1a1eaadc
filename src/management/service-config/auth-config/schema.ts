import * as z from 'zod'
import type { Field } from './field.ts'
import { type AuthConfig, FIELD_ENTRIES, type FieldName } from './fields.ts'

const shapeOf = (entries: [FieldName, Field][], schemaOf: (field: Field) => z.ZodType) =>
  Object.fromEntries(entries.map(([name, field]) => [name, schemaOf(field)]))

const cache = new Map<z.ZodType, Map<string, z.ZodType>>()

/** Derives one schema for all fields with the same base and key: the start of the Worker waits for the creation of every schema. */
function derive(base: z.ZodType, key: string, make: () => z.ZodType): z.ZodType {
  const byKey = cache.get(base) ?? new Map<string, z.ZodType>()
  const schema = byKey.get(key) ?? make()
  cache.set(base, byKey.set(key, schema))
  return schema
}

const inReply = ({ replySchema: base, default: value, neverNull }: Field) =>
  derive(base, JSON.stringify(['reply', value, neverNull]), () =>
    (neverNull ? base : base.nullable()).meta({ ...base.meta(), ...(value !== null && { default: value }) }),
  )

/** Accepts read-only fields with their current value, so that clients can send back the whole configuration. */
const inUpdate = ({ schema, replySchema, default: value, readOnly, notNull }: Field) =>
  readOnly
    ? derive(replySchema, `read-only ${value}`, () =>
        replySchema
          .nullable()
          .refine((input) => input === value, `is read-only: must be ${value} or omitted`)
          .optional(),
      )
    : derive(schema, `update ${notNull}`, () => (notNull ? schema : schema.nullable()).optional())

// Shapes and types derive from the same table, but TypeScript cannot infer types through its entries.
export const AuthConfigReply = z
  .object(shapeOf(FIELD_ENTRIES, inReply))
  .meta({ id: 'AuthConfig' }) as unknown as z.ZodType<AuthConfig, AuthConfig>

export type AuthConfigUpdate = { [Name in FieldName]?: AuthConfig[Name] | undefined }
export const UpdateAuthConfig = z
  .strictObject(shapeOf(FIELD_ENTRIES, inUpdate))
  .meta({ id: 'UpdateAuthConfig' }) as unknown as z.ZodType<AuthConfigUpdate, AuthConfigUpdate>
