import { forgetFunction } from '../../services/functions/open-function.ts'
import { forgetProject } from '../../services/gateway/open-project.ts'

/** Clears the caches of a project in this isolate; the other isolates see the change within a second. */
export function clearProjectCaches(ref: string): void {
  forgetProject(ref)
  forgetFunction(ref)
}
