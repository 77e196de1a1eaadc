import type { BranchAccess, OrganizationAccess, ProjectAccess } from '../../access/access.ts'
import type { SystemCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import type { RequestFacts } from '../../platform/http/log.ts'

/** The resource of the path's {ref}, {slug} or {branch_id_or_ref}; the caller's role in it is already checked. */
export interface Resources {
  project: ProjectAccess
  organization: OrganizationAccess
  branch: BranchAccess
}

/** The Hono environment of the management API. */
export interface AppEnv {
  Bindings: Bindings
  Variables: {
    ctx: SystemCtx
    access: Partial<Resources>
    /** The validated body of a route that takes other content types than JSON. */
    body: unknown
    /** Fields of the request's log line, collected while the request runs. */
    facts: RequestFacts
  }
}
