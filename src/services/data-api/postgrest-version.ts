/** The version of PostgREST whose protocol the Data API speaks. */
export const POSTGREST_VERSION = '14.0'
