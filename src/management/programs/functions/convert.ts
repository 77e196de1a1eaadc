import type * as z from 'zod'
import type { functionDeployments, functions } from '../../../model/tables/index.ts'
import type { EdgeFunction } from './schema.ts'
import { urlOf } from './source-files.ts'

export type FunctionRow = typeof functions.$inferSelect
export type DeploymentRow = typeof functionDeployments.$inferSelect

export function toFunction(row: FunctionRow, deployment: DeploymentRow): z.input<typeof EdgeFunction> {
  const { id, slug, name, status, version, verifyJwt, createdAt, updatedAt } = row
  const { entrypoint, importMap, sha256 } = deployment
  return {
    id,
    slug,
    name,
    status,
    version,
    created_at: createdAt.getTime(),
    // A copy keeps the time of the change that it copies, which decides between it and later changes.
    updated_at: Math.max(createdAt.getTime(), updatedAt.getTime()),
    verify_jwt: verifyJwt,
    import_map: importMap !== null,
    entrypoint_path: urlOf(row, entrypoint),
    ...(importMap !== null && { import_map_path: urlOf(row, importMap) }),
    ezbr_sha256: sha256,
  }
}
