/** What a query of the parent's catalogue returns: statements that make one object, in the copy's words. */
export interface Definition {
  /** Catalogue and object id, as `pg_depend` names them. */
  id: string
  statements: string[]
}

const STORAGE = `'storage'`
const NOT_SYSTEM = `nspname !~ '^pg_' AND nspname <> 'information_schema'`

/** Schemas whose contents the parent's owner makes; `storage` comes with the template. */
export const SCHEMAS = `(SELECT oid FROM pg_namespace WHERE ${NOT_SYSTEM} AND nspname <> ${STORAGE})`
/** For what the owner may add to a table that is not of his making. */
export const SCHEMAS_AND_STORAGE = `(SELECT oid FROM pg_namespace WHERE ${NOT_SYSTEM})`

/** Neither a part of an extension nor made by Postgres along with something else. */
export const standsAlone = (catalogue: string, oid: string): string =>
  `NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = '${catalogue}'::regclass AND d.objid = ${oid}
     AND d.objsubid = 0 AND d.deptype IN ('e', 'i'))`

export const idOf = (catalogue: string, oid: string): string => `'${catalogue}'::regclass::oid || ':' || ${oid}`

/** `name=value` of reloptions and the like as it stands in a statement. */
export const options = (array: string, prefix = ''): string =>
  `(SELECT string_agg('${prefix}' || split_part(o, '=', 1) || '=' || quote_literal(substr(o, strpos(o, '=') + 1)), ', ')
      FROM unnest(${array}) AS o)`

export const collate = (collation: string, usual: string): string =>
  `CASE WHEN ${collation} <> 0 AND ${collation} <> ${usual} THEN ' COLLATE ' || ${collation}::regcollation ELSE '' END`

/** An operator as `OPERATOR(schema.name)`. */
export const operator = (oid: string): string =>
  `(SELECT format('OPERATOR(%I.%s)', nspname, oprname) FROM pg_operator JOIN pg_namespace ON pg_namespace.oid = oprnamespace
     WHERE pg_operator.oid = ${oid})`
