import { quoteIdentifier } from '../../../engine/names.ts'
import { type ReportedLint, textOf } from './lints.ts'
import type { Lint } from './schema.ts'

/** One problem that a check found. */
export interface Finding {
  lint: ReportedLint
  detail: string
  /** Distinguishes findings of the same lint; empty if the lint has at most one finding. */
  key: readonly string[]
  metadata: Lint['metadata']
  /** The number of findings of this lint, including those that are not listed; 1 if omitted. */
  total?: number
}

export const toLint = ({ lint, detail, key, metadata, total = 1 }: Finding, listed: number): Lint => {
  const { title, level, category, description, remediation } = textOf(lint)
  const rest = total > listed ? ` The first ${listed} of ${total} are listed.` : ''
  return {
    name: lint,
    title,
    level,
    facing: 'EXTERNAL',
    categories: [category],
    description: description + rest,
    detail,
    remediation,
    metadata,
    cache_key: [lint, ...key.map(quoteName)].join('.'),
  }
}

/** Quotes a name as SQL does, so that dots in names and dots between them differ. */
const quoteName = (name: string): string => (/^\w+$/.test(name) ? name : quoteIdentifier(name))
