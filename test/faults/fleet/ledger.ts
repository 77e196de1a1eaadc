/** What was acknowledged to the owner of a project, and so must be there, whatever was killed meanwhile. */
export interface Ledger {
  ref: string
  /** Numbers of rows, by when the write was sent and acknowledged. */
  rows: { n: number; sentAt: number; acknowledgedAt: number }[]
  /** Moments that it was restored to; what was sent between one and its request is gone. */
  restored: { to: number; askedAt: number }[]
  isRemoved: boolean
}

export const newLedger = (ref: string): Ledger => ({ ref, rows: [], restored: [], isRemoved: false })

/** A row counts if no restore went back behind it. */
export const mustHold = ({ rows, restored }: Ledger): number[] =>
  rows
    .filter(({ sentAt, acknowledgedAt }) =>
      restored.every(({ to, askedAt }) => acknowledgedAt <= to || sentAt > askedAt),
    )
    .map(({ n }) => n)

/** A row that a restore has undone. */
export const mustMiss = ({ rows, restored }: Ledger): number[] =>
  rows
    .filter(({ sentAt }) => restored.some(({ to, askedAt }) => sentAt > to + 1_000 && sentAt < askedAt))
    .map(({ n }) => n)
