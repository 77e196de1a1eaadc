/** The phases of an upgrade to a newer Postgres, in their order. */
export const UPGRADE_PHASES = ['launch', 'copy', 'complete', 'switch'] as const
export type UpgradePhase = (typeof UPGRADE_PHASES)[number]
