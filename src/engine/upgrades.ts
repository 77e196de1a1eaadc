import type { UpgradePhase } from '../model/upgrade-phases.ts'
import { EngineRefusal, type Fence } from './engine.ts'

/** A project's way to a newer Postgres. */
export interface PostgresUpgrades {
  outlook(ref: string): Promise<UpgradeOutlook>
  /**
   * Sessions end. Asked for again under the same id it goes on, or ends as it has ended. What cannot be is `EngineRefusal`,
   * and what was tried and failed `UpgradeFailed`; the project is then as it was.
   */
  run(request: UpgradeRequest, fence?: Fence): Promise<void>
  /** Undefined where none is under way. */
  phase(ref: string): Promise<UpgradePhase | undefined>
}

export interface UpgradeOutlook {
  /** Such as `18.4`, the newest one first; all are newer than the project's. */
  targets: string[]
  sizeBytes: number
  /** Each keeps the project from being upgraded. Types that the Management API knows have its fields. */
  obstacles: ({ type: string; reason: string } & Record<string, string>)[]
}

interface UpgradeRequest {
  ref: string
  id: string
  /** Postgres's major version. */
  version: string
}

export class UpgradeFailed extends EngineRefusal {
  readonly phase: UpgradePhase

  constructor(phase: UpgradePhase, message: string, options?: ErrorOptions) {
    super(message, options)
    this.phase = phase
  }
}
