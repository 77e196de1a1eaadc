import type { Fact, FactBase } from '@supabase/pg-delta/core'
import type { Action } from '@supabase/pg-delta/plan'
import { quoteIdentifier, quoteLiteral } from '../names.ts'

interface Sides {
  source: FactBase
  desired: FactBase
}

interface Sequence {
  name: string
  minValue: bigint
  maxValue: bigint
}

const SEQUENCE_CHANGE = /^ALTER (?:SEQUENCE .+ (?:AS|MINVALUE|MAXVALUE) |TABLE .+ SET (?:MINVALUE|MAXVALUE) )/s

/**
 * Moves the value of a sequence into its new bounds before these change: Postgres refuses bounds that exclude the value.
 * Bounds that have no value in common with the old ones restart the sequence, as the library writes it.
 */
export function moveIntoBounds({ sql, consumes }: Action, { source, desired }: Sides): string[] {
  if (!SEQUENCE_CHANGE.test(sql) || sql.endsWith(' RESTART')) return []
  for (const id of consumes) {
    const [before, after] = [sequenceOf(source.get(id)), sequenceOf(desired.get(id))]
    if (!before || !after) continue
    if (after.minValue <= before.minValue && after.maxValue >= before.maxValue) continue
    const { name, minValue, maxValue } = after
    const value = `greatest(least(last_value, '${maxValue}'), '${minValue}')`
    return [
      `SELECT pg_catalog.setval(${quoteLiteral(name)}, ${value}, is_called AND last_value = ${value}) FROM ${name}`,
    ]
  }
  return []
}

/** The sequence that the fact describes, or that of its identity column. */
function sequenceOf(fact: Fact | undefined): Sequence | undefined {
  if (fact?.id.kind === 'sequence') return { name: nameOf(fact.id), ...boundsOf(fact.payload) }
  const identity = fact?.id.kind === 'column' ? (fact.payload.identity as Identity | null | undefined) : undefined
  return identity?.sequence && identity.options
    ? { name: nameOf(identity.sequence), ...boundsOf(identity.options) }
    : undefined
}

interface Identity {
  sequence?: { schema: string; name: string } | null
  options?: Record<string, unknown> | null
}

const boundsOf = ({ minValue, maxValue }: Record<string, unknown>) => ({
  minValue: BigInt(String(minValue)),
  maxValue: BigInt(String(maxValue)),
})

const nameOf = ({ schema, name }: { schema: string; name: string }) => [schema, name].map(quoteIdentifier).join('.')
