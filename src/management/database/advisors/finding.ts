import { type ToldLint, textOf } from './lints.ts'
import type { Lint } from './schema.ts'

/** What a check found, once. */
export interface Finding {
  lint: ToldLint
  detail: string
  /** What it is told apart by from others of its lint; empty where there can be one alone. */
  key: readonly string[]
  metadata: Lint['metadata']
  /** How many of its lint there are. */
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
    cache_key: [lint, ...key.map(quoted)].join('.'),
  }
}

/** A name as SQL would write it, so that dots in names and dots between them differ. */
const quoted = (name: string): string => (/^\w+$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`)
