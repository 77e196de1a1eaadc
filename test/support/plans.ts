/** A node of the plan that `explain (analyze, format json)` returns. */
interface Plan {
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: Plan[]
}

/** Returns how many rows of a table were read, including those that did not match. */
export const rowsRead = (plan: Plan, table: string): number =>
  (plan.Plans ?? []).reduce(
    (sum, child) => sum + rowsRead(child, table),
    plan['Relation Name'] === table
      ? (plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)) * plan['Actual Loops']
      : 0,
  )
