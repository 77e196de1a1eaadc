import { forgetFunction } from '../../../services/functions/open-function.ts'
import { forgetProject } from '../../../services/gateway/open-project.ts'

/** This isolate goes by the change at once, the others within a second. */
export function clearProjectCaches(ref: string): void {
  forgetProject(ref)
  forgetFunction(ref)
}
