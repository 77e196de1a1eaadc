import { type ApiRequest, type Compiled, mediaOf, planRows, type Reply, totalOf, totalSql } from './compile.ts'
import { requireOne, SOURCE } from './compile-read.ts'
import { isAffectedLimited } from './compile-write.ts'
import { requestError } from './data-api-error.ts'
import { chooseRoutine, takesBody } from './plan/choose-routine.ts'
import { computedNames } from './plan/read-plan.ts'
import { isSingular, type Media } from './request/media-types.ts'
import { contentRange, pageStatus } from './request/range.ts'
import { keyOf, type Routine, type SchemaCache } from './schema/types.ts'
import { Parameters } from './sql/builder.ts'
import { type Called, callWithArguments, callWithBody, callWithWholeBody } from './sql/call-sql.ts'
import { readSql } from './sql/read-sql.ts'
import { resultSql } from './sql/result-sql.ts'

/** Compiles a call of a function by GET, HEAD or POST. */
export function compileCall(request: ApiRequest, cache: SchemaCache): Compiled {
  const { method, query, preferences } = request
  if (!['GET', 'HEAD', 'POST'].includes(method)) {
    throw requestError('PGRST101', { message: `Cannot use the ${method} method on RPC` })
  }
  const names = argumentNames(request)
  const routine = chooseRoutine(cache, {
    ...{ schema: request.schema, name: request.name, payload: request.payload },
    argumentNames: names,
  })
  if (isAffectedLimited(request) && !routine.returnsSet) throw requestError('PGRST128')
  const media = mediaOf(request, cache, {
    relation: routine.returnsRelation,
    custom: routine.returnsSet ? undefined : routine.mediaType,
  })
  const params = new Parameters()
  const { returnsRelation } = routine
  const node = planRows(request, cache, {
    relation: { schema: request.schema, name: routine.name },
    table: returnsRelation && cache.tables.get(keyOf(returnsRelation)),
    isLimited: true,
    media,
  })
  const called = callSql(params, { ...routine, computed: computedNames(node) }, request)
  const rows = readSql(params, node, { source: SOURCE })
  const total = totalSql(params, { ...request, preferences: withExactCount(preferences) }, node, SOURCE)
  const result = resultSql(params, {
    ...{ media, source: 'pgrst_rows', total },
    isEmpty: method === 'HEAD' || routine.returns === 'void',
    shape: { isScalar: routine.returns !== 'composite', isSingle: !routine.returnsSet },
    checks: {
      isSingular: isSingular(media) && routine.returnsSet,
      affectedMax: isAffectedLimited(request) ? preferences.maxAffected : undefined,
    },
  })
  const { returns, returnsSet } = routine
  return {
    main: { text: `WITH ${SOURCE} AS (${called}), pgrst_rows AS (${rows}) ${result}`, params: params.values },
    isReadOnly: method !== 'POST' || routine.volatility !== 'v',
    ...{
      settings: routine.settings,
      media,
      effective: isAffectedLimited(request) ? ['count', 'maxAffected'] : ['count'],
    },
    reply: replyOf({ request, media, offset: node.window.offset, returns, returnsSet }),
  }

  function callSql(parameters: Parameters, chosen: Called, { payload }: ApiRequest): string {
    if (payload && takesBody(chosen, payload)) return callWithWholeBody(parameters, chosen)
    if (payload?.kind !== 'json') return callWithArguments(parameters, chosen, query.args)
    if (payload.fields) return callWithArguments(parameters, chosen, payload.fields)
    return callWithBody(parameters, chosen, payload, names)
  }
}

interface AnsweredCall extends Pick<Routine, 'returns' | 'returnsSet'> {
  request: ApiRequest
  media: Media
  offset: number
}

const replyOf =
  ({ request, media, offset, returns, returnsSet }: AnsweredCall): Compiled['reply'] =>
  (row): Reply => {
    if (returns === 'void') return { status: 204, headers: {}, body: null }
    if (isSingular(media) && returnsSet) requireOne(row.rows)
    const counted = { ...request, preferences: withExactCount(request.preferences) }
    const page = { offset, rows: row.rows, total: totalOf(counted, row, undefined) }
    return { status: pageStatus(page), headers: { 'content-range': contentRange(page) }, body: row.body }
  }

/** Replaces any kind of count by an exact one, because the planner cannot estimate the rows of a function. */
const withExactCount = (preferences: ApiRequest['preferences']): ApiRequest['preferences'] =>
  preferences.count === undefined ? preferences : { ...preferences, count: 'exact' }

const argumentNames = ({ payload, query }: ApiRequest): string[] => {
  if (payload?.kind === 'raw') return []
  return [...new Set(payload ? (query.columns ?? payload.keys) : query.args.map(([name]) => name))]
}
