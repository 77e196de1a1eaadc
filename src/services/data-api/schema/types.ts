/** Limit for the size of the exposed schemas of a project: the Worker of all projects parses and caches them. */
export const SCHEMA_SIZE_MAX = 8 * 1024 * 1024

interface VersionedSchema {
  /** A new id for each read of the schema. */
  id: string
  version: string
  /** The length of the text that it was read from, and of what views and junctions add to it. */
  size: number
  /** The version as the key of the sessions that run its requests. */
  sessionKey: string | undefined
}

/** Takes the place of exposed schemas above `SCHEMA_SIZE_MAX`, so that they are not read again until they change. */
export interface TooLargeSchema extends VersionedSchema {
  isTooLarge: true
}

export type LoadedSchema = SchemaCache | TooLargeSchema

/** The exposed schemas of a project, as the Data API caches them. */
export interface SchemaCache extends VersionedSchema {
  tables: ReadonlyMap<string, Table>
  functions: ReadonlyMap<string, readonly Routine[]>
  /** By `keyOf` of the source; undefined if there are too many to keep them. */
  relationships: ReadonlyMap<string, readonly Relationship[]> | undefined
  /** By `keyOf` of the relation whose rows they take, or by `ANY_RELATION`; then by media type. */
  handlers: ReadonlyMap<string, MediaHandlers>
  timezones: ReadonlySet<string>
  /** `pgrst.*` settings of the role `authenticator` and of the database. */
  settings: Readonly<Record<string, string>>
  /** Settings of each role that hold for its requests. */
  roleSettings: ReadonlyMap<string, Readonly<Record<string, string>>>
  hasGeoJson: boolean
}

export interface Name {
  schema: string
  name: string
}

/** The key of a relation or function in maps. Names may contain any character but NUL. */
export const keyOf = ({ schema, name }: Name): string => `${schema}\0${name}`

export const ANY_RELATION = ''

/** An aggregate that writes rows in a media type. */
export interface MediaHandler extends Name {
  /** The relation whose rows it takes; undefined if it takes any. */
  relation: Name | undefined
}

export type MediaHandlers = ReadonlyMap<string, MediaHandler>

export interface Table extends Name {
  kind: 'table' | 'view' | 'foreign' | 'materialized' | 'partitioned'
  columns: ReadonlyMap<string, Column>
  /** Whether a function of the project converts a column to JSON. */
  isFormatted: boolean
  primaryKey: readonly string[]
  insertable: boolean
  updatable: boolean
  deletable: boolean
}

export interface Column {
  name: string
  /** Qualified and with its modifiers, such as `character varying(3)`. */
  type: string
  /** The SQL of its default; null if there is none. */
  defaultSql: string | null
  representation: Representation | undefined
}

/** Functions that convert values of a domain where callers read, write and filter them. */
export interface Representation {
  toJson?: Name
  fromJson?: Name
  fromText?: Name
}

export interface Parameter {
  name: string
  type: string
  isOptional: boolean
  isVariadic: boolean
}

export interface Routine extends Name {
  parameters: readonly Parameter[]
  volatility: 'v' | 's' | 'i'
  returnsSet: boolean
  /** The relation whose rows are returned, if the rows are those of a relation. */
  returnsRelation: Name | undefined
  returns: 'void' | 'scalar' | 'composite'
  /** The media type that the returned domain is named after. */
  mediaType: string | undefined
  /** Settings of the function that hold for the whole request. */
  settings: Readonly<Record<string, string>>
}

/** Pairs of columns: of the source, of the target. */
export type ColumnPairs = readonly (readonly [source: string, target: string])[]

interface RelationshipEnds {
  source: Name
  target: Name
}

export interface KeyRelationship extends RelationshipEnds {
  kind: 'to-one' | 'to-many' | 'one-to-one'
  constraint: string
  columns: ColumnPairs
  isSelf: boolean
  isTargetView: boolean
}

export interface JunctionRelationship extends RelationshipEnds {
  kind: 'many-to-many'
  junction: Name
  sourceConstraint: string
  targetConstraint: string
  /** From the source to the junction. */
  sourceColumns: ColumnPairs
  /** From the target to the junction. */
  targetColumns: ColumnPairs
}

export interface ComputedRelationship extends RelationshipEnds {
  kind: 'computed'
  routine: Name
  isToOne: boolean
}

export type Relationship = KeyRelationship | JunctionRelationship | ComputedRelationship

export const isToOne = (relationship: Relationship): boolean =>
  relationship.kind === 'computed'
    ? relationship.isToOne
    : relationship.kind === 'to-one' || relationship.kind === 'one-to-one'
