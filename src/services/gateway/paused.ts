import type { ProjectStatus } from '../../model/tables/index.ts'

/** Whether the project answers no request until a member restores it. */
export const isPaused = (status: ProjectStatus): boolean => status === 'INACTIVE' || status === 'PAUSING'

/** The answer of a paused project. Clients repeat a 503, which cannot help here, but no 540. */
export const PAUSED = { status: 540, message: 'The project is paused' } as const
