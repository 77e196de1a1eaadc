import type { FactBase } from '@supabase/pg-delta/core'
import type { Action } from '@supabase/pg-delta/plan'
import type { Session } from '../session.ts'

interface TypeRow {
  name: string
  /** Whether every type has an explicit cast to and from it. */
  is_string: boolean
  /** The types that a value can be cast to. */
  targets: string[]
}

/** The types of a database that are neither domains nor composite, by name. */
export type TypeCasts = ReadonlyMap<string, TypeRow>

/** Qualified names, because the database's search path may contain objects of the same name. */
const NAMED_TYPES = `
  SELECT t.oid, t.typcategory, t.typtype, CASE n.nspname WHEN 'pg_catalog' THEN pg_catalog.format_type(t.oid, NULL)
           ELSE pg_catalog.format('%I.%I', n.nspname, t.typname) END AS name
    FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace`

export async function readCasts(session: Session): Promise<TypeCasts> {
  const types = await session.rows<TypeRow>(
    `WITH named AS (${NAMED_TYPES})
     SELECT source.name, source.typcategory OPERATOR(pg_catalog.=) 'S' AS is_string,
            ARRAY(SELECT target.name FROM pg_catalog.pg_cast AS c JOIN named AS target ON target.oid OPERATOR(pg_catalog.=) c.casttarget
                   WHERE c.castsource OPERATOR(pg_catalog.=) source.oid) AS targets
       FROM named AS source
      WHERE pg_catalog.strpos('berm', source.typtype::pg_catalog.text) OPERATOR(pg_catalog.>) 0
        AND source.typcategory OPERATOR(pg_catalog.<>) 'A'`,
  )
  return new Map(types.map((type) => [type.name, type]))
}

const RETYPED = /^(ALTER TABLE .+ TYPE (.+) USING "(?:[^"]|"")*")::\2$/s

/** Casts a column's values through another type if the old one has no cast to the new one, which the library assumes. */
export function castThroughAnother({ sql, consumes }: Action, source: FactBase, casts: TypeCasts): string {
  const [, head, to] = RETYPED.exec(sql) ?? []
  const column = consumes.find(({ kind }) => kind === 'column')
  const from = column && source.get(column)?.payload.type
  if (head === undefined || to === undefined || typeof from !== 'string' || hasCast(from, to, casts)) return sql
  const isNumber = casts.get(from)?.targets.includes('integer') && casts.get('integer')?.targets.includes(to)
  return `${head}::${isNumber ? 'integer' : 'text'}::${to}`
}

/** Whether Postgres has a cast between two types. Types that are not in the list count as castable. */
function hasCast(from: string, to: string, casts: TypeCasts): boolean {
  const [own, other] = [from, to].map((name) => name.replace(/\(\d+(,-?\d+)?\)/, '')) as [string, string]
  if (own === other) return true
  if (own.endsWith('[]') && other.endsWith('[]')) return hasCast(own.slice(0, -2), other.slice(0, -2), casts)
  const [source, target] = [own, other].map((name) => casts.get(name.replace('[]', '')))
  if (!source || !target) return true
  const isString = (name: string, type: TypeRow) => type.is_string && !name.endsWith('[]')
  if (isString(own, source) || isString(other, target)) return true
  return !own.endsWith('[]') && source.targets.includes(other)
}
