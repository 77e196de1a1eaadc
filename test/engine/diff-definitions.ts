/**
 * Returns SQL that lists what an independent reader compares: one line per fact, from the catalogue and Postgres's
 * own `pg_get_*def`.
 */
export function definitionsOf(): string {
  const parts = Object.entries(FACTS).map(
    ([kind, { select, from, oid, classId }]) =>
      `SELECT '${kind} ' || row(${select})::text || coalesce(' -- ' || obj_description(${oid}, '${classId}'), '') AS line FROM ${from}`,
  )
  return `SET search_path = pg_catalog; SET jit = off; ${[...parts, ...OTHERS].join('\nUNION ALL\n')}`.replaceAll(
    'IN_USE',
    `NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'extensions', 'supabase_migrations')`,
  )
}

interface Facts {
  select: string
  from: string
  oid: string
  classId: string
}

const NAMESPACE = 'JOIN pg_namespace n ON n.nspname IN_USE AND n.oid ='
const RIGHTS = (acl: string, kind: string, owner: string) =>
  `(SELECT array_agg(x ORDER BY x) FROM (SELECT row(coalesce(g.rolname, 'public'), privilege_type, is_grantable)::text AS x
     FROM aclexplode(coalesce(${acl}, acldefault('${kind}', ${owner}))) LEFT JOIN pg_authid g ON g.oid = grantee) AS rights)`
const MEMBER = (classId: string, oid: string) =>
  `EXISTS (SELECT 1 FROM pg_depend m WHERE m.classid = '${classId}'::regclass AND m.objid = ${oid} AND m.deptype = 'e')`

const FACTS: Readonly<Record<string, Facts>> = {
  schema: {
    select: `nspname, nspowner::regrole, ${RIGHTS('nspacl', 'n', 'nspowner')}`,
    from: `pg_namespace WHERE nspname IN_USE AND nspname !~ '^pg_'`,
    oid: 'pg_namespace.oid',
    classId: 'pg_namespace',
  },
  relation: {
    select: `c.oid::regclass, relkind, relpersistence, relowner::regrole, relrowsecurity, relforcerowsecurity, relreplident,
      reloptions, reloftype::regtype,
      (SELECT reloptions FROM pg_class toast WHERE toast.oid = c.reltoastrelid), relispartition, pg_get_expr(relpartbound, c.oid), pg_get_partkeydef(c.oid), pg_get_viewdef(c.oid),
      (SELECT array_agg(inhparent::regclass::text ORDER BY inhseqno) FROM pg_inherits WHERE inhrelid = c.oid),
      ${RIGHTS('relacl', 'r', 'relowner')}`,
    from: `pg_class c ${NAMESPACE} relnamespace WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT ${MEMBER('pg_class', 'c.oid')}`,
    oid: 'c.oid',
    classId: 'pg_class',
  },
  sequence: {
    select: `c.oid::regclass, seqtypid::regtype, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle, relowner::regrole,
      (SELECT d.refobjid::regclass || '.' || a.attname || d.deptype::text FROM pg_depend d
         JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.objid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')),
      ${RIGHTS('relacl', 's', 'relowner')}`,
    from: `pg_sequence JOIN pg_class c ON c.oid = seqrelid ${NAMESPACE} relnamespace`,
    oid: 'c.oid',
    classId: 'pg_class',
  },
  index: {
    select: `pg_get_indexdef(indexrelid), indisvalid, indisclustered, indisreplident,
      (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = indexrelid)`,
    from: `pg_index JOIN pg_class c ON c.oid = indexrelid ${NAMESPACE} relnamespace`,
    oid: 'c.oid',
    classId: 'pg_class',
  },
  constraint: {
    select: `conrelid::regclass, contypid::regtype, conname, pg_get_constraintdef(c.oid, true), convalidated, coninhcount, conislocal`,
    from: `pg_constraint c ${NAMESPACE} connamespace WHERE contype <> 't'`,
    oid: 'c.oid',
    classId: 'pg_constraint',
  },
  routine: {
    select: `CASE WHEN prokind = 'a' THEN row(p.oid::regprocedure, a.*)::text ELSE pg_get_functiondef(p.oid) END,
      proowner::regrole, ${RIGHTS('proacl', 'f', 'proowner')}`,
    from: `pg_proc p ${NAMESPACE} pronamespace
      LEFT JOIN (SELECT aggfnoid, aggtransfn, aggfinalfn, aggtranstype::regtype, agginitval, aggsortop FROM pg_aggregate) a ON aggfnoid = p.oid
      WHERE NOT ${MEMBER('pg_proc', 'p.oid')}
        AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'i')`,
    oid: 'p.oid',
    classId: 'pg_proc',
  },
  trigger: {
    select: 'pg_get_triggerdef(t.oid), tgenabled',
    from: `pg_trigger t JOIN pg_class c ON c.oid = tgrelid ${NAMESPACE} relnamespace WHERE NOT tgisinternal`,
    oid: 't.oid',
    classId: 'pg_trigger',
  },
  policy: {
    select: `polrelid::regclass, polname, polcmd, polpermissive, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid),
      ARRAY(SELECT r::regrole::text FROM unnest(polroles) AS r ORDER BY 1)`,
    from: `pg_policy p JOIN pg_class c ON c.oid = polrelid ${NAMESPACE} relnamespace`,
    oid: 'p.oid',
    classId: 'pg_policy',
  },
  rule: {
    select: 'pg_get_ruledef(r.oid), ev_enabled',
    from: `pg_rewrite r JOIN pg_class c ON c.oid = ev_class ${NAMESPACE} relnamespace`,
    oid: 'r.oid',
    classId: 'pg_rewrite',
  },
  type: {
    select: `t.oid::regtype, typtype, typowner::regrole, format_type(typbasetype, typtypmod), typnotnull, typdefault, typcollation,
      (SELECT array_agg(enumlabel ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid),
      (SELECT array_agg(row(attname, format_type(atttypid, atttypmod))::text ORDER BY attname) FROM pg_attribute
        WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped),
      (SELECT rngsubtype::regtype FROM pg_range WHERE rngtypid = t.oid), ${RIGHTS('typacl', 'T', 'typowner')}`,
    from: `pg_type t ${NAMESPACE} typnamespace WHERE (typrelid = 0 OR EXISTS (SELECT 1 FROM pg_class WHERE oid = typrelid AND relkind = 'c'))
      AND typcategory <> 'A' AND NOT ${MEMBER('pg_type', 't.oid')}`,
    oid: 't.oid',
    classId: 'pg_type',
  },
  statistics: {
    select: 'pg_get_statisticsobjdef(s.oid), stxstattarget',
    from: `pg_statistic_ext s ${NAMESPACE} stxnamespace`,
    oid: 's.oid',
    classId: 'pg_statistic_ext',
  },
  collation: {
    select: 'collname, collprovider, colllocale, collisdeterministic',
    from: `pg_collation c ${NAMESPACE} collnamespace`,
    oid: 'c.oid',
    classId: 'pg_collation',
  },
  publication: {
    select: `pubname, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,
      (SELECT array_agg(row(tablename, attnames, rowfilter)::text ORDER BY tablename) FROM pg_publication_tables m WHERE m.pubname = p.pubname)`,
    from: 'pg_publication p WHERE true',
    oid: 'p.oid',
    classId: 'pg_publication',
  },
  extension: {
    select: 'extname, extnamespace::regnamespace, extversion',
    from: 'pg_extension e WHERE true',
    oid: 'e.oid',
    classId: 'pg_extension',
  },
}

const OTHERS = [
  `SELECT 'column ' || row(attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated,
      attcollation::regcollation, attislocal, attinhcount, attstorage, attstattarget, attcompression, attoptions, pg_get_expr(adbin, adrelid),
      CASE WHEN attacl IS NOT NULL THEN ${RIGHTS('attacl', 'c', 'relowner')} END)::text
      || coalesce(' -- ' || col_description(attrelid, attnum), '')
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid ${NAMESPACE} relnamespace
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT ${MEMBER('pg_class', 'c.oid')}`,
  `SELECT 'default privileges ' || row(defaclrole::regrole, defaclnamespace::regnamespace, defaclobjtype,
      (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(defaclacl) AS x))::text FROM pg_default_acl`,
]
