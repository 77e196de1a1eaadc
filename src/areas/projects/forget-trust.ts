import { forgetProject } from '../../auth/project.ts'
import { forgetFunction } from '../../runtime/known.ts'

/** This isolate goes by the change at once, the others within a second. */
export function forgetTrust(ref: string): void {
  forgetProject(ref)
  forgetFunction(ref)
}
