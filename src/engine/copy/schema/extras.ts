import { idOf, SCHEMAS, SCHEMAS_AND_STORAGE, standsAlone } from './scope.ts'

export const statistics = `
  SELECT ${idOf('pg_statistic_ext', 's.oid')} AS id, array_remove(ARRAY[pg_get_statisticsobjdef(s.oid),
      CASE WHEN stxstattarget >= 0 THEN format('ALTER STATISTICS %I.%I SET STATISTICS %s', nspname, stxname, stxstattarget) END], NULL) AS statements
    FROM pg_statistic_ext AS s JOIN pg_namespace ON pg_namespace.oid = stxnamespace
   WHERE stxnamespace IN ${SCHEMAS} AND ${standsAlone('pg_statistic_ext', 's.oid')}`

/** Those of all tables or of whole schemas are a superuser's. */
export const COPIED_PUBLICATIONS = `NOT puballtables AND ${standsAlone('pg_publication', 'p.oid')}
  AND NOT EXISTS (SELECT FROM pg_publication_namespace WHERE pnpubid = p.oid)`

export const publications = `
  SELECT ${idOf('pg_publication', 'p.oid')} AS id, ARRAY[format('CREATE PUBLICATION %I%s WITH (publish = %L, publish_via_partition_root = %L)',
      pubname, (SELECT ' FOR TABLE ' || string_agg(format('%s%s%s',
          CASE WHEN EXISTS (SELECT FROM pg_inherits WHERE inhparent = prrelid) THEN 'ONLY ' ELSE '' END || prrelid::regclass,
          (SELECT format(' (%s)', string_agg(quote_ident(attname), ', ' ORDER BY attnum)) FROM pg_attribute
            WHERE attrelid = prrelid AND attnum = ANY (prattrs) AND prattrs IS NOT NULL HAVING count(*) > 0),
          ' WHERE (' || pg_get_expr(prqual, prrelid) || ')'), ', ' ORDER BY prrelid::regclass::text)
        FROM pg_publication_rel WHERE prpubid = p.oid),
      concat_ws(', ', CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,
        CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END), CASE WHEN pubviaroot THEN 'true' ELSE 'false' END)] AS statements
    FROM pg_publication AS p
   WHERE ${COPIED_PUBLICATIONS}`

/** `pg_identify_object` names kinds in words that mostly are those of COMMENT ON. */
export const comments = `
  SELECT format('COMMENT ON %s %s IS %L',
      CASE WHEN type LIKE '% column' THEN 'COLUMN' WHEN type LIKE '% constraint' THEN 'CONSTRAINT' WHEN type = 'composite type' THEN 'TYPE'
        WHEN type = 'statistics object' THEN 'STATISTICS' ELSE upper(type) END,
      CASE type WHEN 'domain constraint' THEN
        (SELECT format('%I ON DOMAIN %s', conname, format_type(contypid, NULL)) FROM pg_constraint WHERE oid = objoid) ELSE identity END,
      description) AS statement
    FROM (
      SELECT classoid, objoid, objsubid, description FROM pg_description
       WHERE NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = classoid AND d.objid = objoid AND d.objsubid = 0 AND d.deptype = 'e')
         AND classoid <> ALL ('{pg_extension,pg_language,pg_largeobject,pg_event_trigger,pg_am,pg_opclass,pg_opfamily,pg_transform}'::regclass[])) AS c,
      pg_identify_object(classoid, objoid, objsubid) AS o
   WHERE (objoid >= 16384 OR (type = 'schema' AND identity = 'public')) AND NOT (type = 'schema' AND identity = 'storage')`

/** Constraints that hold, by the names under which they were added without a proof. */
export const proved = `
  SELECT coalesce(conrelid::regclass::text, '') AS relation, format_type(nullif(contypid, 0), NULL) AS type, conname AS name
    FROM pg_constraint AS k LEFT JOIN pg_class AS c ON c.oid = conrelid LEFT JOIN pg_type AS t ON t.oid = contypid
   WHERE convalidated AND contype IN ('c', 'f') AND coalesce(relnamespace, typnamespace) IN ${SCHEMAS_AND_STORAGE}`
