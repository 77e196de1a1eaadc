import type pg from 'pg'

/** What Postgres itself writes about an object, where columns of the catalogue hold numbers or parse trees. */
const TEXTS: Readonly<Record<string, string>> = {
  pg_class: `CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) WHEN relkind IN ('i', 'I') THEN pg_get_indexdef(c.oid)
    WHEN relkind = 'p' THEN pg_get_partkeydef(c.oid) END || coalesce(pg_get_expr(relpartbound, c.oid), '')`,
  pg_constraint: `pg_get_constraintdef(c.oid)`,
  pg_trigger: `pg_get_triggerdef(c.oid)`,
  pg_rewrite: `pg_get_ruledef(c.oid)`,
  pg_attrdef: `pg_get_expr(adbin, adrelid)`,
  pg_policy: `concat(pg_get_expr(polqual, polrelid), '|', pg_get_expr(polwithcheck, polrelid))`,
  pg_proc: `CASE WHEN prokind <> 'a' THEN pg_get_functiondef(c.oid) END`,
  pg_type: `pg_get_expr(typdefaultbin, 0)`,
  pg_statistic_ext: `pg_get_statisticsobjdef(c.oid)`,
  pg_publication_rel: `pg_get_expr(prqual, prrelid)`,
  pg_description: `(SELECT identity FROM pg_identify_object(classoid, objoid, objsubid))`,
  pg_init_privs: `(SELECT identity FROM pg_identify_object(classoid, objoid, objsubid))`,
}

/** Where the bytes lie, how many there were at some time, and numbers that dropped columns shift. */
const PASSING = [
  ...[
    'oid',
    'relfilenode',
    'relpages',
    'reltuples',
    'relallvisible',
    'relallfrozen',
    'relfrozenxid',
    'relminmxid',
    'reltoastrelid',
  ],
  ...[
    'relhassubclass',
    'attnum',
    'adnum',
    'conkey',
    'confkey',
    'indkey',
    'tgattr',
    'attmissingval',
    'atthasmissing',
    'partattrs',
  ],
  ...[
    'prattrs',
    'objoid',
    'objsubid',
    'relnatts',
    'stxkeys',
    'enumsortorder',
    'relhasrules',
    'relhastriggers',
    'tgname',
    'seqrelid',
  ],
]

const CATALOGUES = [
  ...[
    'pg_namespace',
    'pg_extension',
    'pg_class',
    'pg_attribute',
    'pg_type',
    'pg_enum',
    'pg_range',
    'pg_attrdef',
    'pg_constraint',
  ],
  ...[
    'pg_index',
    'pg_inherits',
    'pg_partitioned_table',
    'pg_sequence',
    'pg_proc',
    'pg_aggregate',
    'pg_operator',
    'pg_opclass',
    'pg_cast',
  ],
  ...[
    'pg_collation',
    'pg_ts_dict',
    'pg_ts_config',
    'pg_ts_config_map',
    'pg_trigger',
    'pg_rewrite',
    'pg_policy',
    'pg_statistic_ext',
  ],
  ...[
    'pg_publication',
    'pg_publication_rel',
    'pg_publication_namespace',
    'pg_default_acl',
    'pg_description',
    'pg_largeobject_metadata',
  ],
  ...['pg_event_trigger', 'pg_language', 'pg_init_privs', 'pg_foreign_server', 'pg_transform', 'pg_conversion'],
]

export interface Catalogue {
  [name: string]: string[]
}

/**
 * Every row of every catalogue, read column by column without a look at what the copying reads: references as the names of
 * what they point at, rights as sets, the project's roles under one name.
 */
export async function readCatalogue(client: pg.Client, owner: string): Promise<Catalogue> {
  const { rows: columns } = await client.query<{
    catalogue: string
    column: string
    kind: string
    target: string | null
  }>(
    `SELECT attrelid::regclass::text AS catalogue, attname AS column, atttypid::regtype::text AS kind, target::regclass::text AS target
       FROM pg_attribute LEFT JOIN (SELECT fktable, fkcols[1] AS col, is_array, min(pktable::oid)::regclass AS target
           FROM pg_get_catalog_foreign_keys() WHERE array_length(fkcols, 1) = 1 GROUP BY 1, 2, 3) AS f ON fktable = attrelid AND col = attname
      WHERE attrelid = ANY ($1::regclass[]) AND attnum > 0`,
    [`{${CATALOGUES.join(',')}}`],
  )
  const read: Catalogue = {}
  for (const catalogue of CATALOGUES) {
    const own = columns.filter((each) => each.catalogue === catalogue && !PASSING.includes(each.column))
    const values = own.flatMap(({ column, kind, target }) => {
      if (kind === 'pg_node_tree') return []
      if (kind === 'aclitem[]')
        return [`${quoted(column)}, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(${of(column)}) AS a)`]
      if (target === 'pg_authid' && kind === 'oid')
        return [`${quoted(column)}, CASE ${of(column)} WHEN 0 THEN '' ELSE pg_get_userbyid(${of(column)}) END`]
      if (target === 'pg_authid')
        return [
          `${quoted(column)}, (SELECT array_agg(CASE r WHEN 0 THEN '' ELSE pg_get_userbyid(r) END ORDER BY 1) FROM unnest(${of(column)}) AS r)`,
        ]
      if (target && ['oid', 'regproc'].includes(kind))
        return [
          `${quoted(column)}, CASE WHEN ${of(column)} <> 0 THEN (SELECT identity FROM pg_identify_object('${target}'::regclass, ${of(column)}, 0)) END`,
        ]
      if (kind === 'oidvector' || kind === 'oid[]')
        return target
          ? [
              `${quoted(column)}, (SELECT array_agg((SELECT identity FROM pg_identify_object('${target}'::regclass, o, 0)) ORDER BY n) FROM unnest(${of(column)}) WITH ORDINALITY AS u (o, n))`,
            ]
          : []
      if (kind === 'oid') return []
      return [`${quoted(column)}, ${of(column)}`]
    })
    const text = TEXTS[catalogue]
    if (text) values.push(`'text', ${text}`)
    const { rows } = await client.query<{ row: Record<string, unknown> }>(
      `SELECT ${jsonOf(values)} AS row FROM pg_catalog.${catalogue} AS c`,
    )
    read[catalogue] = rows
      .map(({ row }) =>
        JSON.stringify(row)
          .replaceAll(owner, 'OWNER')
          .replace(/pg_toast_\d+/g, 'pg_toast_N'),
      )
      .filter((row) => !row.includes('pg_toast') && !/RI_ConstraintTrigger/.test(row))
      .sort()
  }
  return read
}

const quoted = (name: string) => `'${name}'`
const of = (name: string) => `c.${name}`

/** A function takes no more than a hundred arguments. */
function jsonOf(values: readonly string[]): string {
  const parts: string[] = []
  for (let at = 0; at < values.length; at += 20)
    parts.push(`jsonb_build_object(${values.slice(at, at + 20).join(', ')})`)
  return parts.join(' || ')
}

/** What is in one and not in the other. */
export function difference(parent: Catalogue, copy: Catalogue): Catalogue {
  const found: Catalogue = {}
  for (const catalogue of CATALOGUES) {
    const missing = without(parent[catalogue] ?? [], copy[catalogue] ?? []).map((row) => `only in the parent: ${row}`)
    const more = without(copy[catalogue] ?? [], parent[catalogue] ?? []).map((row) => `only in the copy: ${row}`)
    if (missing.length + more.length > 0) found[catalogue] = [...missing, ...more]
  }
  return found
}

function without(some: readonly string[], others: readonly string[]): string[] {
  const counts = new Map<string, number>()
  for (const row of others) counts.set(row, (counts.get(row) ?? 0) + 1)
  return some.filter((row) => {
    const count = counts.get(row) ?? 0
    counts.set(row, count - 1)
    return count <= 0
  })
}

/** The rows of every table, as one text each. */
export async function readRows(client: pg.Client): Promise<Record<string, string>> {
  const { rows: tables } = await client.query<{ name: string }>(
    `SELECT oid::regclass::text AS name FROM pg_class WHERE (relkind = 'S' OR (relkind IN ('r', 'm') AND (relkind = 'r' OR relispopulated)))
       AND relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'storage'))`,
  )
  const read: Record<string, string> = {}
  for (const { name } of tables) {
    const row = name.endsWith('_seq') || name === 'app.numbers' ? 'ROW(t.last_value, t.is_called)::text' : 't::text'
    const { rows } = await client.query(
      `SELECT count(*) || ' ' || md5(coalesce(string_agg(${row}, '|' ORDER BY ${row}), '')) AS sum FROM ${name} AS t`,
    )
    read[name] = rows[0].sum
  }
  return read
}
