import { idOf, operator, SCHEMAS, standsAlone } from './scope.ts'

const OWN = `pronamespace IN ${SCHEMAS} AND ${standsAlone('pg_proc', 'p.oid')}`

/** Those in C were made by the cluster's superuser, who alone could make them again. */
export const functions = `
  SELECT ${idOf('pg_proc', 'p.oid')} AS id, ARRAY[pg_get_functiondef(p.oid)] AS statements
    FROM pg_proc AS p JOIN pg_language ON pg_language.oid = prolang WHERE prokind <> 'a' AND lanpltrusted AND ${OWN}`

const named = (oid: string) =>
  `(SELECT format('%I.%I', nspname, proname) FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace WHERE pg_proc.oid = ${oid})`
const modify = (column: string, usual: string) =>
  `CASE WHEN ${column} <> ${usual} THEN CASE ${column} WHEN 'r' THEN 'READ_ONLY' WHEN 's' THEN 'SHAREABLE' ELSE 'READ_WRITE' END END`
const USUAL_MODIFY = `CASE WHEN aggkind = 'n' THEN 'r' ELSE 'w' END`

export const aggregates = `
  SELECT ${idOf('pg_proc', 'p.oid')} AS id, ARRAY[format('CREATE AGGREGATE %I.%I(%s) (%s)', nspname, proname, pg_get_function_arguments(p.oid),
    concat_ws(', ', 'SFUNC = ' || ${named('aggtransfn')}, 'STYPE = ' || format_type(aggtranstype, NULL),
      'SSPACE = ' || nullif(aggtransspace, 0), 'FINALFUNC = ' || ${named('aggfinalfn')},
      CASE WHEN aggfinalextra THEN 'FINALFUNC_EXTRA' END, 'FINALFUNC_MODIFY = ' || ${modify('aggfinalmodify', USUAL_MODIFY)},
      'COMBINEFUNC = ' || ${named('aggcombinefn')}, 'SERIALFUNC = ' || ${named('aggserialfn')},
      'DESERIALFUNC = ' || ${named('aggdeserialfn')}, 'INITCOND = ' || quote_literal(agginitval),
      'MSFUNC = ' || ${named('aggmtransfn')}, 'MINVFUNC = ' || ${named('aggminvtransfn')},
      'MSTYPE = ' || format_type(nullif(aggmtranstype, 0), NULL), 'MSSPACE = ' || nullif(aggmtransspace, 0),
      'MFINALFUNC = ' || ${named('aggmfinalfn')}, CASE WHEN aggmfinalextra THEN 'MFINALFUNC_EXTRA' END,
      'MFINALFUNC_MODIFY = ' || ${modify('aggmfinalmodify', USUAL_MODIFY)}, 'MINITCOND = ' || quote_literal(aggminitval),
      'SORTOP = ' || ${operator('aggsortop')}, CASE proparallel WHEN 's' THEN 'PARALLEL = SAFE' WHEN 'r' THEN 'PARALLEL = RESTRICTED' END,
      CASE WHEN aggkind = 'h' THEN 'HYPOTHETICAL' END))] AS statements
    FROM pg_proc AS p JOIN pg_aggregate ON aggfnoid = p.oid JOIN pg_namespace ON pg_namespace.oid = pronamespace
   WHERE ${OWN}`

const estimator = (column: string) => `nullif(${column}::oid, 0)::regproc`

export const operators = `
  SELECT ${idOf('pg_operator', 'o.oid')} AS id, ARRAY[format('CREATE OPERATOR %I.%s (%s)', nspname, oprname, concat_ws(', ',
      'FUNCTION = ' || ${named('oprcode')}, 'LEFTARG = ' || format_type(nullif(oprleft, 0), NULL),
      'RIGHTARG = ' || format_type(nullif(oprright, 0), NULL), 'COMMUTATOR = ' || ${operator('o.oprcom')},
      'NEGATOR = ' || ${operator('o.oprnegate')}, 'RESTRICT = ' || ${estimator('oprrest')}, 'JOIN = ' || ${estimator('oprjoin')},
      CASE WHEN oprcanhash THEN 'HASHES' END, CASE WHEN oprcanmerge THEN 'MERGES' END))] AS statements
    FROM pg_operator AS o JOIN pg_namespace ON pg_namespace.oid = oprnamespace
   WHERE oprcode <> 0 AND oprnamespace IN ${SCHEMAS} AND ${standsAlone('pg_operator', 'o.oid')}`

/** Of types, or by functions, that are the owner's own: the others come with Postgres or an extension. */
export const casts = `
  SELECT ${idOf('pg_cast', 'c.oid')} AS id, ARRAY[format('CREATE CAST (%s AS %s) %s%s', format_type(castsource, NULL), format_type(casttarget, NULL),
      CASE castmethod WHEN 'f' THEN 'WITH FUNCTION ' || castfunc::regprocedure WHEN 'i' THEN 'WITH INOUT' ELSE 'WITHOUT FUNCTION' END,
      CASE castcontext WHEN 'a' THEN ' AS ASSIGNMENT' WHEN 'i' THEN ' AS IMPLICIT' ELSE '' END)] AS statements
    FROM pg_cast AS c WHERE c.oid >= 16384 AND ${standsAlone('pg_cast', 'c.oid')}`
