/** The foreign keys of all relations, and what is needed to find them in views. */
export interface Links {
  keys: readonly { o: number; primary: boolean; c: readonly string[] }[]
  foreignKeys: readonly { n: string; o: number; f: number; c: readonly string[]; fc: readonly string[] }[]
  /** Columns of views that are columns of other relations. */
  origins: readonly (readonly [view: number, column: number, relation: number, relationColumn: number])[]
  /** All relations that foreign keys or origins name, whether exposed or not. */
  names: readonly (readonly [oid: number, schema: string, name: string, columns: readonly (string | null)[]])[]
}

/**
 * Top-level target entries of a view stand two braces deep in the text of its rule; a subquery's are deeper. Each names the
 * relation and the column that it comes from.
 */
const ORIGINS = String.raw`
  SELECT view, (entry[1])::int AS number, (entry[2])::oid AS relation, (entry[3])::int AS "column" FROM (
    SELECT view, entry, sum(CASE token WHEN '{' THEN 1 WHEN '}' THEN -1 ELSE 0 END) OVER (PARTITION BY view ORDER BY at) AS depth
    FROM (
      SELECT r.ev_class AS view, match[1] AS token, at, CASE WHEN match[2] IS NOT NULL THEN match[2:4] END AS entry
      FROM pg_rewrite AS r JOIN pg_class AS v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm')
      JOIN pg_namespace AS n ON n.oid = v.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      CROSS JOIN LATERAL regexp_matches(r.ev_action::text,
        $pattern$(\\.|[{}]|:resno (\d+) :resname (?:\\.|[^ ])* :ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (\d+))$pattern$, 'g')
        WITH ORDINALITY AS m (match, at)
      WHERE r.ev_type = '1') AS tokens) AS entries
  WHERE entry IS NOT NULL AND depth = 2 AND entry[2] <> '0'`

/** SQL that reads `Links`: the tables of a WITH, and the fields of a JSON object. */
export const LINKS = {
  tables: `origins AS MATERIALIZED (${ORIGINS}),
      keys AS MATERIALIZED (
        SELECT k.conrelid AS oid, k.contype = 'p' AS primary, (SELECT array_agg(a.attname ORDER BY u.at)
          FROM unnest(k.conkey) WITH ORDINALITY AS u (number, at) JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number) AS cols
        FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE k.contype IN ('p', 'u') AND n.nspname NOT IN ('pg_catalog', 'information_schema')),
      foreign_keys AS MATERIALIZED (
        SELECT k.conname, k.conrelid, k.confrelid,
          (SELECT array_agg(a.attname ORDER BY u.at) FROM unnest(k.conkey) WITH ORDINALITY AS u (number, at)
            JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number) AS cols,
          (SELECT array_agg(a.attname ORDER BY u.at) FROM unnest(k.confkey) WITH ORDINALITY AS u (number, at)
            JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number) AS fcols
        FROM pg_constraint AS k WHERE k.contype = 'f' AND k.conparentid = 0)`,
  fields: `'keys', (SELECT coalesce(json_agg(json_build_object('o', oid::int8, 'primary', "primary", 'c', cols)), '[]') FROM keys),
        'foreignKeys', (SELECT coalesce(json_agg(json_build_object('n', conname, 'o', conrelid::int8, 'f', confrelid::int8,
            'c', cols, 'fc', fcols) ORDER BY conname), '[]') FROM foreign_keys),
        'origins', (SELECT coalesce(json_agg(json_build_array(view::int8, number, relation::int8, "column")), '[]') FROM origins),
        'names', (SELECT coalesce(json_agg(json_build_array(c.oid::int8, n.nspname, c.relname,
            (SELECT json_agg(CASE WHEN a.attisdropped THEN NULL ELSE a.attname END ORDER BY a.attnum) FROM pg_attribute AS a
              WHERE a.attrelid = c.oid AND a.attnum > 0))), '[]')
          FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
          WHERE c.oid IN (SELECT conrelid FROM foreign_keys UNION SELECT confrelid FROM foreign_keys
            UNION SELECT view FROM origins UNION SELECT relation FROM origins))`,
}
