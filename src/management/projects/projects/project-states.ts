import type { ProjectStatus } from '../../../model/tables/index.ts'

export interface Transition {
  from: readonly ProjectStatus[]
  during: ProjectStatus
}

/** For each transition of a project, the statuses it may start from and the status while it runs. */
export const TRANSITIONS = {
  pause: { from: ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY', 'PAUSE_FAILED'], during: 'PAUSING' },
  restore: { from: ['INACTIVE', 'RESTORE_FAILED'], during: 'RESTORING' },
  restart: { from: ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY'], during: 'RESTARTING' },
  delete: {
    from: ['INACTIVE', 'ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY', 'INIT_FAILED', 'PAUSE_FAILED', 'RESTORE_FAILED'],
    during: 'GOING_DOWN',
  },
} as const satisfies Record<string, Transition>
export type TransitionKind = keyof typeof TRANSITIONS

/** Statuses in which the database takes connections. */
export const ACTIVE: readonly ProjectStatus[] = ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY']
