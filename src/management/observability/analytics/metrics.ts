import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { EngineRefusal } from '../../../engine/engine-errors.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { throwApiError } from '../../database/database/service.ts'

/** Returns the current resource usage of the project's server. The request neither wakes the server nor keeps it awake. */
export async function getMetrics({ engine }: Ctx, { ref }: ProjectAccess): Promise<string> {
  if (!engine.metrics) throw notMeasured(`the driver ${engine.name} does not measure databases`)
  return engine.metrics(ref).catch((error) => {
    if (error instanceof EngineRefusal) throw notMeasured(error.message)
    throwApiError(error)
  })
}

const notMeasured = (detail: string) => new ApiError('bad_request.driver', { detail })
