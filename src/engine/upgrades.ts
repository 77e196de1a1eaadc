import type { UpgradePhase } from '../model/upgrade-phases.ts'
import { EngineRefusal } from './engine-errors.ts'
import type { Fence } from './fence.ts'

/** Upgrades of a project to a newer version of Postgres. */
export interface PostgresUpgrades {
  check(ref: string): Promise<UpgradeCheck>
  /**
   * Ends all sessions. Idempotent by `id`: a repeated call continues the upgrade or returns its outcome. Rejects with
   * `EngineRefusal` if the upgrade is impossible and with `UpgradeFailed` if it failed; the project is then unchanged.
   */
  run(request: UpgradeRequest, fence?: Fence): Promise<void>
  /** The phase of the running upgrade; undefined if there is none. */
  phase(ref: string): Promise<UpgradePhase | undefined>
}

export interface UpgradeCheck {
  /** Newer versions such as `18.4`, the newest first. */
  targets: string[]
  sizeBytes: number
  /** Each blocks the upgrade. Types that the Management API defines have the fields it defines. */
  obstacles: ({ type: string; reason: string } & Record<string, string>)[]
}

interface UpgradeRequest {
  ref: string
  id: string
  /** Major version of Postgres. */
  version: string
}

export class UpgradeFailed extends EngineRefusal {
  readonly phase: UpgradePhase

  constructor(phase: UpgradePhase, message: string, options?: ErrorOptions) {
    super(message, options)
    this.phase = phase
  }
}
