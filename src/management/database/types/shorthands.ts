/** Generic types for clients. Each takes a name in the public schema, or `{ schema }` and a name in that schema. */
export const SHORTHANDS = `
type DatabaseWithoutInternals = Omit<Database, "__InternalSupabase">

type DefaultSchema = DatabaseWithoutInternals[Extract<keyof Database, "public">]

type InSchema = { schema: keyof DatabaseWithoutInternals }

type Group<Schema, Name extends string> = Schema extends {
  [Key in Name]: infer Found
}
  ? Found
  : never

type Relations<Schema> = Group<Schema, "Tables"> & Group<Schema, "Views">

type Named<Found, Name> = Name extends keyof Found ? Found[Name] : never

export type Tables<
  NameOrSchema extends keyof Relations<DefaultSchema> | InSchema,
  Name extends NameOrSchema extends InSchema
    ? keyof Relations<DatabaseWithoutInternals[NameOrSchema["schema"]]>
    : never = never,
> = Group<
  NameOrSchema extends InSchema
    ? Named<Relations<DatabaseWithoutInternals[NameOrSchema["schema"]]>, Name>
    : Named<Relations<DefaultSchema>, NameOrSchema>,
  "Row"
>
${['Insert', 'Update'].map(printWriteType).join('')}${['Enums', 'CompositeTypes'].map(printNamedType).join('')}`

function printWriteType(part: string): string {
  return `
export type Tables${part}<
  NameOrSchema extends keyof Group<DefaultSchema, "Tables"> | InSchema,
  Name extends NameOrSchema extends InSchema
    ? keyof Group<DatabaseWithoutInternals[NameOrSchema["schema"]], "Tables">
    : never = never,
> = Group<
  NameOrSchema extends InSchema
    ? Named<
        Group<DatabaseWithoutInternals[NameOrSchema["schema"]], "Tables">,
        Name
      >
    : Named<Group<DefaultSchema, "Tables">, NameOrSchema>,
  "${part}"
>
`
}

function printNamedType(group: string): string {
  return `
export type ${group}<
  NameOrSchema extends keyof Group<DefaultSchema, "${group}"> | InSchema,
  Name extends NameOrSchema extends InSchema
    ? keyof Group<DatabaseWithoutInternals[NameOrSchema["schema"]], "${group}">
    : never = never,
> = NameOrSchema extends InSchema
  ? Named<
      Group<DatabaseWithoutInternals[NameOrSchema["schema"]], "${group}">,
      Name
    >
  : Named<Group<DefaultSchema, "${group}">, NameOrSchema>
`
}
