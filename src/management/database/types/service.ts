import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { parseRows } from '../../../engine/engine.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { CATALOGUE, type Catalogue, SCHEMAS } from '../../../services/data-api/openapi/catalogue.ts'
import { catalogueWithDetails, type SchemaDescription } from '../../../services/data-api/openapi/catalogue-details.ts'
import { DocumentTooLarge, openApiOf } from '../../../services/data-api/openapi/openapi.ts'
import { TooManyRelationships } from '../../../services/data-api/openapi/relationships.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { runQuery } from '../database/service.ts'
import { generateTypes } from './generate-types.ts'

/** Reads the catalogue in one statement, and so in one snapshot. */
export async function generateTypescriptTypes(ctx: Ctx, project: ProjectAccess, included: string) {
  const schemas = included.split(',').map((name) => name.trim())
  const rows = await runQuery(ctx, project, { query: CATALOGUE, parameters: [schemas], readOnly: true })
  const [found] = (await parseRows(rows)) as [{ catalogue: Catalogue }]
  return rejectTooLarge(() => ({ types: generateTypes(found.catalogue) }))
}

function rejectTooLarge<T>(make: () => T): T {
  try {
    return make()
  } catch (error) {
    if (!(error instanceof TooManyRelationships || error instanceof DocumentTooLarge)) throw error
    throw new ApiError('bad_request.sql_result_too_large', { detail: error.message, cause: error })
  }
}

export async function getDatabaseOpenApi(ctx: Ctx, project: ProjectAccess, schema: string) {
  const query = catalogueWithDetails({ followsPrivileges: false })
  const rows = await runQuery(ctx, project, { query, parameters: [[schema]], readOnly: true })
  const [found] = (await parseRows(rows)) as [SchemaDescription]
  if (found.catalogue.schemas.length === 0) {
    throw invalidField('query.schema', 'must be a schema of the database', 'unknown')
  }
  return rejectTooLarge(() => openApiOf(schema, found))
}

export async function getDatabaseContext(ctx: Ctx, project: ProjectAccess) {
  const rows = (await parseRows(await runQuery(ctx, project, { query: SCHEMAS, readOnly: true }))) as {
    database: string
    schema: string
  }[]
  const byDatabase = Map.groupBy(rows, ({ database }) => database)
  const databases = Array.from(byDatabase, ([name, own]) => ({
    name,
    schemas: own.map(({ schema }) => ({ name: schema })),
  }))
  return { databases }
}
