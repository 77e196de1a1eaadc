interface Fields {
  status: number
  code: string
  message: string
  details?: unknown
  hint?: string | null
  headers?: Record<string, string>
  statusText?: string
}

/** An error in the form of PostgREST, which clients parse. */
export class DataApiError extends Error {
  override name = 'DataApiError'
  readonly status: number
  readonly code: string
  readonly details: unknown
  readonly hint: string | null
  readonly headers: Record<string, string>
  /** The reason phrase of the response; empty for the standard one. */
  readonly statusText: string

  constructor(
    { status, code, message, details = null, hint = null, headers = {}, statusText = '' }: Fields,
    cause?: unknown,
  ) {
    super(message, { cause })
    this.status = status
    this.code = code
    this.details = details
    this.hint = hint
    this.headers = headers
    this.statusText = statusText
  }

  get body() {
    const { code, details, hint, message } = this
    return { code, details, hint, message }
  }
}

export const bodyTooLarge = (limit: string) =>
  new DataApiError({ status: 413, code: 'PGRST102', message: `The body is larger than ${limit}` })

export const unfiltered = (verb: 'UPDATE' | 'DELETE') =>
  new DataApiError({ status: 400, code: '21000', message: `${verb} requires a WHERE clause` })

/** Errors that PostgREST raises itself, by code, with its statuses and texts. */
const REQUEST_ERRORS = {
  PGRST101: [405, 'Cannot use this method on RPC'],
  PGRST102: [400, 'Empty or invalid json'],
  PGRST103: [416, 'Requested range not satisfiable'],
  PGRST105: [405, "Filters must include all and only primary key columns with 'eq' operators"],
  PGRST106: [406, 'Invalid schema'],
  PGRST107: [406, 'None of these media types are available'],
  PGRST108: [400, 'Not an embedded resource'],
  PGRST111: [500, 'response.headers guc must be a JSON array composed of objects with a single key and a string value'],
  PGRST112: [500, 'response.status guc must be a valid status code'],
  PGRST114: [400, 'limit/offset querystring parameters are not allowed for PUT'],
  PGRST115: [400, 'Payload values do not match URL in primary key column(s)'],
  PGRST116: [406, 'Cannot coerce the result to a single JSON object'],
  PGRST117: [405, 'Unsupported HTTP method'],
  PGRST118: [400, 'A related order is not possible'],
  PGRST120: [400, 'Bad operator on an embedded resource'],
  PGRST121: [500, 'Could not parse JSON in the "RAISE SQLSTATE \'PGRST\'" error'],
  PGRST122: [400, 'Invalid preferences given with handling=strict'],
  PGRST123: [400, 'Use of aggregate functions is not allowed'],
  PGRST124: [400, 'Query result exceeds max-affected preference constraint'],
  PGRST125: [404, 'Invalid path specified in request URL'],
  PGRST126: [404, 'Root endpoint metadata is disabled'],
  PGRST127: [400, 'Feature not implemented'],
  PGRST128: [400, 'Function must return SETOF or TABLE when max-affected preference is used with handling=strict'],
  PGRST200: [400, 'Could not find a relationship in the schema cache'],
  PGRST201: [300, 'Could not embed because more than one relationship was found'],
  PGRST202: [404, 'Could not find the function in the schema cache'],
  PGRST203: [300, 'Could not choose the best candidate function'],
  PGRST204: [400, 'Could not find the column in the schema cache'],
  PGRST205: [404, 'Could not find the table in the schema cache'],
} as const satisfies Record<string, readonly [status: number, message: string]>

type More = Partial<Pick<Fields, 'message' | 'details' | 'hint' | 'headers'>>

export function requestError(code: keyof typeof REQUEST_ERRORS, more: More = {}): DataApiError {
  const [status, message] = REQUEST_ERRORS[code]
  const { details } = more
  return new DataApiError({
    ...{ status, code, ...more, message: shorten(more.message ?? message) },
    details: typeof details === 'string' ? shorten(details) : details,
  })
}

const TEXT_LENGTH_MAX = 2_000

/** Cuts the middle out of a text that repeats a long name from the request. */
const shorten = (text: string): string =>
  text.length <= TEXT_LENGTH_MAX ? text : `${text.slice(0, TEXT_LENGTH_MAX / 2)}…${text.slice(-TEXT_LENGTH_MAX / 2)}`

/** The error of a query parameter that does not follow the grammar. */
export const parseError = (message: string, details: string): DataApiError =>
  new DataApiError({ status: 400, code: 'PGRST100', message, details })
