import type { Logger } from '../../platform/http/log.ts'
import type { NewEvent } from './publish.ts'

/** Converts an event type to a log event: `v1.project.branch.created` becomes `branch_created`. */
const nameOf = (type: string): string => type.replace(/^v1\.(project\.(?=branch\.))?/, '').replaceAll('.', '_')

/** Logs life cycle events of projects and branches. Other events concern members and are in the audit log. */
export function logLifecycle({ info }: Logger, events: readonly NewEvent[]): void {
  for (const { type, projectRef, fields, reason } of events) {
    if (!type.startsWith('v1.project.') || type === 'v1.project.secrets.leaked') continue
    info(nameOf(type), {
      project: projectRef,
      ...('previous_status' in fields && { from: fields.previous_status, to: fields.current_status }),
      ...('branch' in fields && { branch: fields.branch.ref, status: fields.branch.status }),
      ...(reason !== undefined && { reason }),
    })
  }
}
