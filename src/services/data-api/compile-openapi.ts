import type { ApiRequest, Compiled } from './compile.ts'
import { DataApiError, requestError } from './data-api-error.ts'
import { catalogueWithDetails, type SchemaDescription } from './openapi/catalogue-details.ts'
import { DocumentTooLarge, openApiOf } from './openapi/openapi.ts'
import { TooManyRelationships } from './openapi/relationships.ts'
import { openApiMedia } from './request/media-types.ts'
import type { SchemaCache } from './schema/types.ts'
import { RESPONSE_SETTINGS } from './sql/result-sql.ts'

/** Compiles a GET or HEAD of the root, which returns the OpenAPI document of the schema. `url` is the address of the Data API. */
export function compileOpenApi(request: ApiRequest, { settings }: SchemaCache, url: string): Compiled {
  const { accept, method, schema } = request
  const mode = settings['pgrst.openapi_mode']
  if (mode === 'disabled') throw requestError('PGRST126')
  const found = catalogueWithDetails({ followsPrivileges: mode !== 'ignore-privileges' })
  const body =
    method === 'HEAD'
      ? 'NULL'
      : `(SELECT json_build_object('catalogue', catalogue, 'details', details)::text FROM (${found}) AS found)`
  return {
    main: {
      text: `SELECT 1 AS rows, NULL AS total, ${body} AS body, ${RESPONSE_SETTINGS}`,
      params: method === 'HEAD' ? [] : [[schema]],
    },
    ...{ isReadOnly: true, settings: {}, media: openApiMedia(accept), effective: [] },
    reply: (row) => ({ status: 200, headers: {}, body: typeof row.body === 'string' ? documentOf(row.body) : null }),
    readsBody: true,
  }

  function documentOf(text: string): string {
    try {
      return JSON.stringify(openApiOf(schema, JSON.parse(text) as SchemaDescription, url))
    } catch (error) {
      if (!(error instanceof TooManyRelationships || error instanceof DocumentTooLarge)) throw error
      const message = `The OpenAPI document is too large: ${error.message}`
      throw new DataApiError({ status: 500, code: '54000', message })
    }
  }
}
