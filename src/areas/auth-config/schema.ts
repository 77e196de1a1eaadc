import * as z from 'zod'
import type { Field } from './field.ts'
import { type AuthConfig, FIELD_ENTRIES, type FieldName } from './fields.ts'

const shapeOf = (entries: [FieldName, Field][], schemaOf: (field: Field) => z.ZodType) =>
  Object.fromEntries(entries.map(([name, field]) => [name, schemaOf(field)]))

const inReply = ({ told, default: value, alwaysThere }: Field) =>
  (alwaysThere ? told : told.nullable()).meta({ ...told.meta(), ...(value !== null && { default: value }) })

const inUpdate = ({ schema, notNull }: Field) => (notNull ? schema : schema.nullable()).optional()

const writable = FIELD_ENTRIES.filter(([, { readOnly }]) => !readOnly)

// Shapes and types are derived from one table, which no inference can follow through its entries.
export const AuthConfigReply = z
  .object(shapeOf(FIELD_ENTRIES, inReply))
  .meta({ id: 'AuthConfig' }) as unknown as z.ZodType<AuthConfig, AuthConfig>

export type AuthConfigUpdate = { [Name in FieldName]?: AuthConfig[Name] | undefined }
export const UpdateAuthConfig = z
  .object(shapeOf(writable, inUpdate))
  .meta({ id: 'UpdateAuthConfig' }) as unknown as z.ZodType<AuthConfigUpdate, AuthConfigUpdate>
