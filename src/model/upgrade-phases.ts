/** Phases of an upgrade to a newer Postgres version, in order. */
export const UPGRADE_PHASES = ['launch', 'copy', 'complete', 'switch'] as const
export type UpgradePhase = (typeof UPGRADE_PHASES)[number]
