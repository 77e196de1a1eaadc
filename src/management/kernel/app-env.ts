import type { BranchAccess, OrganizationAccess, ProjectAccess } from '../../access/access.ts'
import type { RequestEnv } from '../../services/gateway/begin-request.ts'

/** The resource of the path's {ref}, {slug} or {branch_id_or_ref}; the caller's role in it is already checked. */
export interface Resources {
  project: ProjectAccess
  organization: OrganizationAccess
  branch: BranchAccess
}

/** The Hono environment of the management API. */
export interface AppEnv extends RequestEnv {
  Variables: RequestEnv['Variables'] & {
    access: Partial<Resources>
    /** The validated body; undefined if it was omitted. */
    body: unknown
  }
}
