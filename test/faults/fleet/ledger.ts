/** Everything that was acknowledged to the owner of a project: it must exist, whatever was killed. */
export interface Ledger {
  ref: string
  /** Numbers of rows, with the times when the write was sent and acknowledged. */
  rows: { n: number; sentAt: number; acknowledgedAt: number }[]
  /** Moments that were restored; writes between one and its request are undone. */
  restored: { to: number; askedAt: number }[]
  isRemoved: boolean
}

export const newLedger = (ref: string): Ledger => ({ ref, rows: [], restored: [], isRemoved: false })

/** Returns the rows that must exist: those that no restore has undone. */
export const mustHold = ({ rows, restored }: Ledger): number[] =>
  rows
    .filter(({ sentAt, acknowledgedAt }) =>
      restored.every(({ to, askedAt }) => acknowledgedAt <= to || sentAt > askedAt),
    )
    .map(({ n }) => n)

/** Returns the rows that a restore has undone. */
export const mustMiss = ({ rows, restored }: Ledger): number[] =>
  rows
    .filter(({ sentAt }) => restored.some(({ to, askedAt }) => sentAt > to + 1_000 && sentAt < askedAt))
    .map(({ n }) => n)
