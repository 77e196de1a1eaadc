/** Settings of a project's Data API, as they are stored. */
interface StoredConfig {
  db_schema: string
  db_extra_search_path: string
  max_rows: number
}

/** Settings that apply if a project has none of its own. */
export const DATA_API_DEFAULTS: StoredConfig = {
  db_schema: 'public,graphql_public',
  max_rows: 1_000,
  db_extra_search_path: 'public, extensions',
}

export interface DataApiConfig {
  /** Exposed schemas, the default one first; empty if the Data API is disabled. */
  schemas: readonly string[]
  extraSearchPath: readonly string[]
  rowsMax: number
}

export function dataApiConfigOf(stored: Partial<StoredConfig> | null): DataApiConfig {
  const { db_schema, db_extra_search_path, max_rows } = { ...DATA_API_DEFAULTS, ...stored }
  return { schemas: namesIn(db_schema), extraSearchPath: namesIn(db_extra_search_path), rowsMax: max_rows }
}

const namesIn = (list: string): string[] => [
  ...new Set(
    list
      .split(',')
      .map((name) => name.trim())
      .filter((name) => name !== ''),
  ),
]
