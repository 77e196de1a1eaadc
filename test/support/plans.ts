/** As `explain (analyze, format json)` tells it. */
interface Plan {
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: Plan[]
}

/** How many rows of a table were looked at, also those that did not fit. */
export const rowsRead = (plan: Plan, table: string): number =>
  (plan.Plans ?? []).reduce(
    (sum, child) => sum + rowsRead(child, table),
    plan['Relation Name'] === table
      ? (plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)) * plan['Actual Loops']
      : 0,
  )
